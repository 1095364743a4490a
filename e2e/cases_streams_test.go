package e2e

import (
	"fmt"
	"strings"
)

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
	chatURL        = "/v1/chat/completions"
	completionsURL = "/v1/completions"
	messagesURL    = "/v1/messages"
	responsesURL   = "/v1/responses"
	geminiURL      = "/v1beta/models/m:streamGenerateContent?alt=sse"
	ollamaURL      = "/api/chat"
)

// streamCase is a stream of the upstream and what the caller gets.
type streamCase struct {
	id      string
	path    string // default chatURL
	in      string
	end     ending
	kind    string            // content type; default text/event-stream
	header  map[string]string // further answer headers
	ask     []string          // further request headers: names and values
	out     string            // the body the caller gets; "=" the same as in
	status  int               // default 200
	outcome string
}

// filled is a case with its defaults.
func (sc streamCase) filled() streamCase {
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
		sc.status = 200
	}
	return sc
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

	usageChunk    = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n"
	roleChunk     = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}` + "\n\n"
	promptTooLong = `data: {"error":{"message":"prompt is too long","code":400},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}` + "\n\n"
	guardrail     = `data: {"error":{"message":"guardrail","code":400}}` + "\n\n"
	llamaError    = "error: {\"code\":400,\"message\":\"exceeds context\"}\n\n"
	queueFull     = `data: {"error":{"message":"The request queue is full.","code":503}}` + "\n\n"
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
		{id: "C14", in: CH("a") + FIN("stop") + DONE, end: hang, ask: []string{"x-budget-ms", "250"}, out: "=", outcome: "ok"}, // below linger
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
		{id: "C34", in: llamaError + DONE, out: "=", outcome: "bad_request"},
		{id: "C34", in: CH("a") + llamaError + DONE, out: "=", outcome: "bad_request"},
		{id: "C35", in: `{"error":{"code":400,"message":"bad"}}`, out: `{"error":{"code":400,"message":"bad"}}`, status: 400, outcome: "bad_request"},
		{id: "C37", in: CH("a") + `data: {"error":{"message":"busy","code":503},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}` + "\n\n",
			out: CH("a") + `data: {"error":{"message":"busy","code":503},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}` + "\n\n" + DONE, outcome: "overloaded"},
		{id: "C37", in: CH("a") + promptTooLong, out: CH("a") + promptTooLong + DONE, outcome: "bad_request"},
		{id: "C39", in: "retry: 3000\n\nid: secret-7\n\nevent: secret\n\n" + CH("a"),
			out: "retry: 3000\n\nid: secret-7\n\nevent: secret\n\n" + CH("a") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C39", in: "retry: 3000\n\nid: 7\n\nevent: ping\n\n" + CH("a") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C41", in: CH("a") + "data:\n\n" + CH("b") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C42", in: strings.ReplaceAll(CH("a"), "\n", "\r\n") + strings.Replace(CH("b"), "data: ", "data:", 1),
			out: strings.ReplaceAll(CH("a"), "\n", "\r\n") + strings.Replace(CH("b"), "data: ", "data:", 1) + P("upstream_truncated"), outcome: "truncated"},
		{id: "C43", in: CH("日本語🙂") + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C46", in: CH("a") + usageChunk + FIN("stop") + DONE, out: "=", outcome: "ok"},
		{id: "C47", in: FIN("stop") + usageChunk + DONE, out: "=", outcome: "empty"},
		{id: "C48", in: CH("a") + `data: {"choices":[{"del`, out: CH("a") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C48", in: CH("a") + strings.TrimRight(CH("b"), "\n"), out: CH("a") + CH("b") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C48", in: CH("a") + strings.TrimRight(CH("b"), "\n"), end: cut, out: CH("a") + CH("b") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C48", in: CH("a") + strings.TrimRight(FIN("stop"), "\n"), out: CH("a") + FIN("stop"), outcome: "ok"}, // SDKs would drop it
		{id: "C45", in: strings.ReplaceAll(CH("a")+CH("b")+FIN("stop")+DONE, "\n", "\r\n"), out: "=", outcome: "ok"},
		{id: "C51", in: CH("a") + CH("b"), header: map[string]string{"content-length": fmt.Sprint(len(CH("a") + CH("b")))},
			out: CH("a") + CH("b") + P("upstream_truncated"), outcome: "truncated"},
		{id: "C79", in: queueFull + DONE, out: `{"error":{"message":"The request queue is full.","code":503}}`, status: 503, outcome: "overloaded"},
		{id: "C90", in: roleChunk + FIN("stop") + DONE, out: "=", outcome: "empty"},
		{id: "C95", path: geminiURL, in: `data: {"candidates":[{"finishReason":"SAFETY","index":0}]}` + "\n\n", out: "=", outcome: "refusal"},
	}
}
