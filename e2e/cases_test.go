package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/envoy"
)

// The cases are failures that users of gateways, SDKs and model servers have reported in public, restated as input and
// right behaviour. Each is named by its number; a streamed one runs whole, one byte at a time, and cut at each of its
// last 64 bytes.

// CH, FIN and DONE are the frames of an OpenAI chat stream that the cases are written in.
func CH(text string) string {
	return `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + "\n\n"
}

func FIN(reason string) string {
	return `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\n"
}

const DONE = "data: [DONE]\n\n"

// mark are the four keys of an ending of ours.
func mark(reason string) string {
	return `"tier":"full","degraded":true,"reason":"` + reason + `","complete":false`
}

// P is the ending of a chat stream.
func P(reason string) string {
	return "event: done\n" + `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"length"}],` +
		mark(reason) + "}\n\n" + DONE
}

const (
	chatURL      = "/v1/chat/completions"
	messagesURL  = "/v1/messages"
	responsesURL = "/v1/responses"
	geminiURL    = "/v1beta/models/m:streamGenerateContent?alt=sse"
	ollamaURL    = "/api/chat"
)

// streamCase is a stream of the upstream and what the caller gets.
type streamCase struct {
	id      string
	path    string // default chatURL
	in      string
	end     ending
	kind    string            // content type; default text/event-stream
	header  map[string]string // further answer headers
	out     string            // the body the caller gets; "=" the same as in
	status  int               // default 200
	outcome string
}

const (
	anthropicStart = `event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}` + "\n\n"
	anthropicTool  = anthropicStart + `event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}` + "\n\n" +
		`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"fa"}}` + "\n\n"
	anthropicText = anthropicStart + `event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n" +
		`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}` + "\n\n"
	anthropicEnd = `event: content_block_stop` + "\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
		`event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}` + "\n\n" +
		`event: message_stop` + "\n" + `data: {"type":"message_stop"}` + "\n\n"
	anthropicOverloaded = "event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}` + "\n\n"

	geminiChunk = `data: {"candidates":[{"content":{"parts":[{"text":"a"}],"role":"model"},"index":0}]}` + "\n\n"

	toolChunk = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":"{\"path\":\"a"}}]},"finish_reason":null}]}` + "\n\n"
	chatError = `data: {"error":{"message":"answer incomplete: upstream_truncated","type":"server_error","param":null,"code":"upstream_truncated"}}` + "\n\n" + DONE

	responsesIncomplete = `event: response.created` + "\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","status":"in_progress","output":[]}}` + "\n\n" +
		`event: response.incomplete` + "\n" + `data: {"type":"response.incomplete","sequence_number":1,"response":{"id":"r1","object":"response","status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}}` + "\n\n"

	usageChunk = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n"
	roleChunk  = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}` + "\n\n"
	guardrail  = `data: {"error":{"message":"guardrail","code":400}}` + "\n\n"
	queueFull  = `data: {"error":{"message":"The request queue is full.","code":503}}` + "\n\n"
)

// streamCases are the cases whose answer is a stream.
func streamCases() []streamCase {
	geminiEnd := `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}],` + mark("upstream_truncated") + "}\n\n"
	return []streamCase{
		{id: "C01", in: CH("a") + FIN("abort") + DONE, out: CH("a") + P("preempted"), outcome: "evicted"},
		{id: "C02", in: CH("a") + CH("b"), out: CH("a") + CH("b") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C06", in: CH("a"), end: cut, out: CH("a") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C07", in: CH("a") + guardrail, out: CH("a") + guardrail + DONE, outcome: "bad_request"},
		{id: "C09", in: CH("a") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C10", path: messagesURL, in: anthropicTool, out: anthropicTool + "event: error\n" +
			`data: {"type":"error","error":{"type":"overloaded_error","message":"answer incomplete: upstream_truncated"}}` + "\n\n", outcome: "truncated"},
		{id: "C11", path: messagesURL, in: anthropicText + anthropicOverloaded, out: "=", outcome: "overloaded"},
		{id: "C13", path: messagesURL, in: anthropicText + anthropicEnd, end: hang, out: "=", outcome: "ok"},
		{id: "C14", in: CH("a") + FIN("stop") + DONE, end: hang, out: "=", outcome: "ok"},
		{id: "C20", in: toolChunk, out: toolChunk + chatError, outcome: "truncated"},
		{id: "C23", path: responsesURL, in: responsesIncomplete, out: "=", outcome: "refusal"},
		{id: "C24", path: geminiURL, in: geminiChunk + geminiChunk, out: geminiChunk + geminiChunk + geminiEnd, outcome: "truncated"},
		{id: "C25", path: messagesURL, in: anthropicText, out: anthropicText + "event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
			"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":1},` + mark("upstream_truncated") + "}\n\n" +
			"event: done\n" + `data: {"type":"ping",` + mark("upstream_truncated") + "}\n\n" + "event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n", outcome: "truncated"},
		{id: "C26", path: geminiURL, in: geminiChunk + `data: {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}` + "\n\n", out: "=", outcome: "ok"},
		{id: "C28", path: geminiURL, in: ": heartbeat\n\n" + geminiChunk + `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n", out: "=", outcome: "ok"},
		{id: "C30", path: ollamaURL, kind: "application/x-ndjson",
			in: `{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"a"},"done":false}` + "\n" +
				`{"model":"m","created_at":"2026-01-01T00:00:01Z","message":{"role":"assistant","content":"b"},"done":false}` + "\n",
			out: `{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"a"},"done":false}` + "\n" +
				`{"model":"m","created_at":"2026-01-01T00:00:01Z","message":{"role":"assistant","content":"b"},"done":false}` + "\n" +
				`{"model":"m","created_at":"2026-01-01T00:00:01Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"length",` + mark("upstream_truncated") + "}\n",
			outcome: "truncated"},
		{id: "C32", path: ollamaURL, kind: "application/x-ndjson",
			in: `{"model":"m","created_at":"t","message":{"role":"assistant","content":"a"},"done":true,"done_reason":"stop"}` + "\n", out: "=", outcome: "ok"},
		{id: "C33", path: ollamaURL, kind: "application/x-ndjson",
			in:  `{"model":"m","created_at":"t","message":{"role":"assistant","content":"a"},"done":false}` + "\n" + `{"error":"an error was encountered"}` + "\n",
			out: "=", outcome: "upstream_error"},
		{id: "C34", in: CH("a") + "error: {\"code\":400,\"message\":\"exceeds context\"}\n\n" + DONE, out: "=", outcome: "bad_request"},
		{id: "C35", in: `{"error":{"code":400,"message":"bad"}}`, out: `{"error":{"code":400,"message":"bad"}}`, status: 400, outcome: "bad_request"},
		{id: "C37", in: CH("a") + `data: {"error":{"message":"busy","code":503},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}` + "\n\n",
			out: CH("a") + `data: {"error":{"message":"busy","code":503},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}` + "\n\n" + DONE, outcome: "overloaded"},
		{id: "C39", in: "retry: 3000\n\nid: 7\n\nevent: ping\n\n" + CH("a") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C41", in: CH("a") + "data:\n\n" + CH("b") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C42", in: strings.ReplaceAll(CH("a"), "\n", "\r\n") + strings.Replace(CH("b"), "data: ", "data:", 1),
			out: strings.ReplaceAll(CH("a"), "\n", "\r\n") + strings.Replace(CH("b"), "data: ", "data:", 1) + P("upstream_truncated"), outcome: "truncated"},
		{id: "C43", in: CH("日本語🙂") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C46", in: CH("a") + usageChunk + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C47", in: FIN("stop") + usageChunk + DONE, out: "=", outcome: "empty"},
		{id: "C48", in: CH("a") + `data: {"choices":[{"del`, out: CH("a") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C51", in: CH("a") + CH("b"), header: map[string]string{"content-length": fmt.Sprint(len(CH("a") + CH("b")))},
			out: CH("a") + CH("b") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C79", in: queueFull + DONE, out: `{"error":{"message":"The request queue is full.","code":503}}`, status: 503, outcome: "overloaded"},
		{id: "C90", in: roleChunk + FIN("stop") + DONE, out: "=", outcome: "empty"},
		{id: "C95", path: geminiURL, in: `data: {"candidates":[{"finishReason":"SAFETY","index":0}]}` + "\n\n", out: "=", outcome: "refusal"},
	}
}

// jsonCase is a whole answer that is judged and passed.
type jsonCase struct {
	id, path, body, outcome string
	status                  int
	header                  map[string]string
	check                   func(t *testing.T, a answer)
}

func jsonCases() []jsonCase {
	message := func(m string) string { return `{"choices":[{"index":0,"message":` + m + `,"finish_reason":"stop"}]}` }
	noRetry := func(t *testing.T, a answer) {
		checkHeader(t, a, "x-should-retry", "false")
		checkHeader(t, a, "retry-after", "")
	}
	return []jsonCase{
		{id: "C29", path: "/v1beta/models/m:generateContent", body: `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"MAX_TOKENS"}]}`, outcome: "capped"},
		{id: "C57", body: message(`{"role":"assistant","content":"日本語\u0000"}`), outcome: "ok"},
		{id: "C77", status: 429, body: "no", header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "rejected-saturated"}, outcome: "overloaded"},
		{id: "C77", status: 429, body: "no", header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "evicted-foo"}, outcome: "evicted"},
		{id: "C77", status: 429, body: "no", header: map[string]string{"content-type": "text/plain"}, outcome: "throttled"},
		{id: "C78", status: 503, body: "no", header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "rejected-no-endpoints"}, outcome: "overloaded",
			check: func(t *testing.T, a answer) { checkHeader(t, a, "retry-after", "") }},
		{id: "C83", status: 429, body: `{"error":{"message":"x","code":"insufficient_quota","type":"insufficient_quota"}}`, header: map[string]string{"retry-after": "20"}, outcome: "quota", check: noRetry},
		{id: "C83", status: 429, body: `{"error":{"message":"x","code":null,"type":"insufficient_quota"}}`, header: map[string]string{"retry-after": "20"}, outcome: "quota", check: noRetry},
		{id: "C85", status: 429, body: `{"error":{"message":"x"}}`, header: map[string]string{"retry-after": "1382400"}, outcome: "throttled", check: noRetry},
		{id: "C87", status: 400, body: `{"message":"Too many requests"}`, header: map[string]string{"x-amzn-errortype": "ThrottlingException"}, outcome: "throttled"},
		{id: "C89", body: message(`{"role":"assistant","content":null}`), outcome: "empty"},
		{id: "C89", body: message(`{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]}`), outcome: "ok"},
		{id: "C89", body: message(`{"role":"assistant","content":null,"refusal":"I can't"}`), outcome: "refusal"},
		{id: "C91", body: message(`{"role":"assistant","content":[{"type":"text","text":"hi"}]}`), outcome: "ok"},
		{id: "C93", body: `{"choices":[{"index":0,"message":{"role":"assistant","content":"","reasoning":"42"},"finish_reason":"stop"}],"usage":{"completion_tokens":50}}`, outcome: "empty"},
		{id: "C95", path: "/v1beta/models/m:generateContent", body: `{"promptFeedback":{"blockReason":"SAFETY"}}`, outcome: "refusal"},
	}
}

// coveredElsewhere are cases with a test of their own.
var coveredElsewhere = map[string]string{
	"C08": "TestSDKTable: what a client makes of C02", "C15": "TestCaseC15", "C18": "TestFiveHundredStreams", "C19": "the SDK table",
	"C21": "the SDK table: only values of the enum", "C45": "TestCaseC45", "C50": "TestCaseC50", "C52": "TestCaseC52", "C54": "TestCaseC52",
	"C55": "TestCaseC55", "C56": "TestAddedDelayPerFrame", "C58": "TestCaseC58", "C60": "extproc: goldens of the encoder", "C61": "TestCaseC61 in extproc",
	"C64": "TestAClientThatLeavesWhileQueuedOrRunning", "C65": "extproc: failure tests", "C67": "TestTimersOfAStream", "C70": "TestCaseC70",
	"C71": "TestWhatCannotBeEndedHonestlyIsNotEndedCleanly", "C75": "TestTheRemainingTimeIsForwarded", "C76": "TestBudgetValues",
	"C81": "TestASilentUpstreamEndsInA504AtTheDeadline", "C82": "TestAClientThatStopsReadingHoldsOnlyItsOwnStream",
}

// notCovered are cases that are not tested, and why.
var notCovered = map[string]string{
	"C04": "replay comes later", "C40": "keepalives are not built", "C62": "a limit of Envoy before 1.37.1 with two duplex filters; documented",
	"C68": "what another processor inside does is not seen from outside", "C69": "the lint that warns comes later; the timeout itself: TestAnInternalNetworkIsBelieved",
	"C72": "keepalives are not built", "C74": "absolute deadlines are not built; relative ones: C75", "C86": "retries come later",
}

// TestEveryCaseHasAPlace keeps the three lists complete: every number of the sections A to H is in exactly one.
func TestEveryCaseHasAPlace(t *testing.T) {
	place := map[string]int{}
	ids := map[string]bool{}
	for _, c := range streamCases() {
		ids[c.id] = true
	}
	for _, c := range jsonCases() {
		ids[c.id] = true
	}
	for id := range ids {
		place[id]++
	}
	for id := range coveredElsewhere {
		place[id]++
	}
	for id := range notCovered {
		place[id]++
	}
	for _, id := range caseNumbers() {
		if place[id] != 1 {
			t.Errorf("%s is in %d places, want 1", id, place[id])
		}
		delete(place, id)
	}
	for id := range place {
		t.Errorf("%s is no case", id)
	}
}

// caseNumbers are the numbers of the sections A to H.
func caseNumbers() []string {
	numbers := []int{1, 2, 4, 6, 7, 8, 9, 10, 11, 13, 14, 15, 18, 19, 20, 21, 23, 24, 25, 26, 28, 29, 30, 32, 33, 34, 35, 37, 39, 40, 41, 42, 43, 45, 46, 47,
		48, 50, 51, 52, 54, 55, 56, 57, 58, 60, 61, 62, 64, 65, 67, 68, 69, 70, 71, 72, 74, 75, 76, 77, 78, 79, 81, 82, 83, 85, 86, 87, 89, 90, 91, 93, 95}
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = fmt.Sprintf("C%02d", n)
	}
	return out
}

func TestCase(t *testing.T) {
	for _, w := range []wire{wires[0], wires[3]} {
		u := startScripted(t)
		s := startStack(t, stackOptions{policy: fmt.Sprintf(watchPolicy, true), scheme: w.upstream, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
		c := newClient(t, w.h2)
		for i, sc := range streamCases() {
			t.Run(sc.id+"/"+w.name, func(t *testing.T) { runStreamCase(t, s, u, c, sc, fmt.Sprint(i), w) })
		}
		for i, jc := range jsonCases() {
			t.Run(jc.id+"/"+w.name, func(t *testing.T) { runJSONCase(t, s, u, c, jc, fmt.Sprint(i)) })
		}
		s.books() // nothing is left over; what bodies say of an outcome no access log can know
	}
}

func runStreamCase(t *testing.T, s *stack, u *scripted, c *http.Client, sc streamCase, name string, w wire) {
	if sc.path == "" {
		sc.path = chatURL
	}
	if sc.kind == "" {
		sc.kind = "text/event-stream"
	}
	if sc.out == "=" {
		sc.out = sc.in
	}
	if sc.status == 0 {
		sc.status = http.StatusOK
	}
	header := map[string]string{"content-type": sc.kind}
	for k, v := range sc.header {
		header[k] = v
	}
	before := s.metric("brownout_requests_total", "outcome", sc.outcome)
	cuts := chunkings(sc, w)
	for i, chunks := range cuts {
		k, v := u.add(fmt.Sprintf("%s-%s-%d", sc.id, name, i), script{header: header, chunks: chunks, end: sc.end})
		a := s.send(t.Context(), c, sc.path, k, v)
		got := a.body
		if sc.end == hang {
			got = strings.TrimRight(got, "\n") + sc.out[len(strings.TrimRight(sc.out, "\n")):] // an empty line may go with the end
		}
		if a.status != sc.status || a.err != nil || got != sc.out {
			t.Fatalf("chunking %d of %d (%d pieces): %d, %v\n got %q\nwant %q", i, len(cuts), len(chunks), a.status, a.err, a.body, sc.out)
		}
	}
	s.waitInflight("full", 0, 0)
	if n := s.metric("brownout_requests_total", "outcome", sc.outcome) - before; n != len(cuts) {
		t.Errorf("%d of %d requests ended as %s", n, len(cuts), sc.outcome)
	}
}

// chunkings are the ways a case's stream is cut: whole, byte by byte, and in two at each of its last 64 bytes.
func chunkings(sc streamCase, w wire) [][]string {
	out := [][]string{{sc.in}}
	if w.h2 && w.upstream == envoy.SchemeH2C && sc.end == hang {
		return out
	}
	out = append(out, strings.Split(sc.in, ""))
	step := 1
	if sc.end == hang || sc.end == cut {
		step = 16 // each takes its time
	}
	for i := max(1, len(sc.in)-64); i < len(sc.in); i += step {
		out = append(out, []string{sc.in[:i], sc.in[i:]})
	}
	return slices.Clip(out)
}

func runJSONCase(t *testing.T, s *stack, u *scripted, c *http.Client, jc jsonCase, name string) {
	if jc.path == "" {
		jc.path = chatURL
	}
	header := map[string]string{"content-type": "application/json"}
	for k, v := range jc.header {
		header[k] = v
	}
	before := s.metric("brownout_requests_total", "outcome", jc.outcome)
	status := jc.status
	if status == 0 {
		status = http.StatusOK
	}
	k, v := u.add(jc.id+"-json-"+name, script{status: jc.status, header: header, chunks: []string{jc.body}})
	a := s.send(t.Context(), c, jc.path, k, v)
	if a.status != status || a.err != nil || a.body != jc.body {
		t.Errorf("got %v, want the upstream's answer", a)
	}
	if jc.check != nil {
		jc.check(t, a)
	}
	s.waitInflight("full", 0, 0)
	if n := s.metric("brownout_requests_total", "outcome", jc.outcome) - before; n != 1 {
		t.Errorf("not counted as %s", jc.outcome)
	}
}
