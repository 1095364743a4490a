package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// casesAlone are the cases that are more than one answer and its ending.
func casesAlone() map[string][]caseTest {
	return map[string][]caseTest{
		"C08": {caseCleanEndIsNotStop}, "C15": {caseEndWithoutProof}, "C18": {caseThreeOfAThousand}, "C19": {caseAISDK}, "C21": {caseStrictEnum},
		"C45": {caseTenMegabytesOfCRLF}, "C50": {caseHugeEvent}, "C52": {caseStaleEncoding}, "C54": {caseGzipStream}, "C55": {caseHeldHeaders},
		"C56": {caseNoBuffering}, "C58": {caseNoBody}, "C60": {caseOnlyStreamedReplies}, "C61": {caseLastPieceTwice}, "C64": {caseAbortBetweenChunks},
		"C65": {caseBrownoutDies}, "C67": {caseDeadlineBeforeAndAfterHeaders}, "C69": {caseRouteTimeoutInFront}, "C70": {caseSteadyStream},
		"C71": {caseEnvoyTimesOutFirst}, "C75": {caseRemainingIsClamped}, "C76": {caseBudgetValues}, "C81": {caseSlowFirstToken}, "C82": {caseStoppedReader},
	}
}

// chatChunk is what readers of a chat stream look at.
type chatChunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Tier     string `json:"tier"`
	Degraded bool   `json:"degraded"`
	Reason   string `json:"reason"`
	Complete *bool  `json:"complete"`
}

// readChat reads a chat stream as SDKs do: the data of each event, up to [DONE].
func readChat(body string) ([]chatChunk, error) {
	var out []chatChunk
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			break
		}
		var c chatChunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return nil, fmt.Errorf("%q: %w", data, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// guessedFinish is the finish reason of a reader that, like LiteLLM, takes a clean end for "stop".
func guessedFinish(body string) string {
	chunks, err := readChat(body)
	if err != nil {
		return err.Error()
	}
	for _, c := range slices.Backward(chunks) {
		for _, choice := range c.Choices {
			if choice.FinishReason != nil {
				return *choice.FinishReason
			}
		}
	}
	return "stop"
}

// caseCleanEndIsNotStop is C08: who takes a clean end for a whole answer is told before it.
func caseCleanEndIsNotStop(t *testing.T, e *caseEnv, id string) {
	in := CH("a") + CH("b")
	if got := guessedFinish(in); got != "stop" {
		t.Fatalf("the reader of this test finds %q in what the upstream sent", got)
	}
	inChunks(in, func(way string, s script) {
		k, v := e.u.add(id+way, s)
		if a := e.post(t, id, chatURL, "{}", k, v); a.err != nil || guessedFinish(a.body) != "length" {
			t.Errorf("%s: the finish reason is %q: %v", way, guessedFinish(a.body), a)
		}
	})
}

// caseEndWithoutProof is C15: a service that sends no proof of completion may be believed at its end, by policy.
func caseEndWithoutProof(t *testing.T, e *caseEnv, id string) {
	in := event("response.created", `{"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","status":"in_progress","output":[]}}`) +
		event("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":1,"item_id":"m1","output_index":0,"content_index":0,"delta":"whole"}`) +
		event("response.output_text.done", `{"type":"response.output_text.done","sequence_number":2,"item_id":"m1","output_index":0,"content_index":0,"text":"whole"}`)
	ok, truncated := e.counted("C15-eof", "ok"), e.counted(id, "truncated")
	n := inChunks(in, func(way string, s script) {
		k, v := e.u.add(id+way, s)
		if a := e.post(t, "C15-eof", responsesURL, "{}", k, v); a.status != 200 || a.body != in || a.err != nil {
			t.Errorf("%s: evidence: eof: %v", way, a)
		}
		if a := e.post(t, id, responsesURL, "{}", k, v); a.status != 200 || a.err != nil || !strings.Contains(a.body, `"reason":"upstream_truncated"`) {
			t.Errorf("%s: by the dialect's rule: %v", way, a)
		}
	})
	e.outcomes(t, "C15-eof", "ok", ok, n)
	e.outcomes(t, id, "truncated", truncated, n)
}

// caseThreeOfAThousand is C18: of a thousand streams two are cut, one of them inside a tool call, and one falls silent.
func caseThreeOfAThousand(t *testing.T, e *caseEnv, id string) {
	whole := []string{CH("a"), CH("b"), FIN("stop"), DONE}
	text := strings.Join(whole, "")
	e.u.add(id+"whole", script{chunks: whole})
	e.u.add(id+"at once", script{chunks: []string{text}})
	e.u.add(id+"bytes", chunkings(text)[1])
	e.u.add(id+"cut", script{chunks: whole[:2], end: cut})
	e.u.add(id+"tool", script{chunks: []string{toolChunk}, end: cut})
	e.u.add(id+"silent", script{chunks: whole[:2], end: hang})
	want := map[string]string{"cut": CH("a") + CH("b") + P("upstream_truncated"), "tool": toolChunk + chatError, "silent": CH("a") + CH("b") + P("stalled")}
	var next, degraded atomic.Int64
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for i := next.Add(1); i <= 1000; i = next.Add(1) {
				kind := []string{"whole", "at once", "bytes"}[i%3]
				if odd, ok := map[int64]string{10: "silent", 400: "cut", 700: "tool"}[i]; ok {
					kind = odd
				}
				a, out := e.post(t, id, chatURL, "{}", "x-script", id+kind), text
				if w, ok := want[kind]; ok {
					out = w
					degraded.Add(1)
				}
				if a.status != 200 || a.err != nil || a.body != out {
					t.Errorf("stream %d, %s: %v", i, kind, a)
				}
			}
		})
	}
	wg.Wait()
	for outcome, n := range map[string]int{"ok": 997, "truncated": 2, "stalled": 1} {
		if got := e.counted(id, outcome); got != [2]int{1000, n} {
			t.Errorf("of %d streams %d ended as %s, want %d of 1000", got[0], got[1], outcome, n)
		}
	}
}

// caseAISDK is C19: the AI SDK reports what our ending says, not its own "other".
func caseAISDK(t *testing.T, e *caseEnv, id string) {
	command := sdkDrivers(t, "node")["node"]
	in := strings.Join(sdkChat.streamScript("end without evidence").chunks, "")
	var list []sdkCase
	for i, s := range chunkings(in) {
		k, v := e.u.add(fmt.Sprint(id, i), s)
		list = append(list, sdkCase{Row: "ai openai-compatible streamText", Scenario: fmt.Sprint("chunking ", i), Headers: map[string]string{k: v}, MaxTokens: 64})
	}
	seen, err := runDriver(t.Context(), command, "http://"+e.s.envoy.Addr+"/"+id, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range seen {
		if s.Text != sdkPartial || s.Finish != "length" || s.Error != "" {
			t.Errorf("%v: want %q and length", s, sdkPartial)
		}
	}
}

// caseStrictEnum is C21: a client that knows the finish reasons of the protocol and no others reads all of it, and the
// truth stands beside them.
func caseStrictEnum(t *testing.T, e *caseEnv, id string) {
	legal := []string{"stop", "length", "tool_calls", "content_filter", "function_call"}
	for name, in := range map[string]string{"cut": CH("a"), "cancelled": CH("a") + FIN("cancelled") + DONE, "error": CH("a") + FIN("error") + DONE} {
		inChunks(in, func(way string, s script) {
			k, v := e.u.add(id+name+way, s)
			a := e.post(t, id, chatURL, "{}", k, v)
			chunks, err := readChat(a.body)
			if err != nil || len(chunks) == 0 || a.err != nil {
				t.Errorf("%s, %s: %v, %v", name, way, a, err)
				return
			}
			for _, c := range chunks {
				for _, choice := range c.Choices {
					if choice.FinishReason != nil && !slices.Contains(legal, *choice.FinishReason) {
						t.Errorf("%s, %s: finish reason %q", name, way, *choice.FinishReason)
					}
				}
			}
			if last := chunks[len(chunks)-1]; last.Tier != "full" || !last.Degraded || last.Reason == "" || last.Complete == nil || *last.Complete {
				t.Errorf("%s, %s: the last chunk says %+v", name, way, last)
			}
		})
	}
}

// caseTenMegabytesOfCRLF is C45: ten megabytes of CRLF frames pass frame by frame; less than a frame of each is held.
func caseTenMegabytesOfCRLF(t *testing.T, e *caseEnv, id string) {
	frame := strings.ReplaceAll(CH(strings.Repeat("x", 800)), "\n", "\r\n")
	whole := strings.Repeat(frame, (10<<20)/len(frame)) + FIN("stop") + DONE
	for name, size := range map[string]int{"in one piece": len(whole), "frame by frame": len(frame), "across frames": len(frame) - 7} {
		k, v := e.u.add(id+name, script{chunks: pieces(whole, size)})
		if a := e.post(t, id, chatURL, "{}", k, v); a.status != 200 || a.body != whole || a.err != nil {
			t.Errorf("%s: %d of %d bytes, %v", name, len(a.body), len(whole), a.err)
		}
	}
	caseHeldBytes(t, e, id, frame)
}

// caseHeldBytes: of a stream that pauses inside a frame, that piece of a frame is held and no more.
func caseHeldBytes(t *testing.T, e *caseEnv, id, frame string) {
	own := startCases(t, e.wire) // the gauge is of all streams
	k, v := own.u.add("pausing", script{chunks: []string{strings.Repeat(frame, 1000) + frame[:100], frame[100:] + FIN("stop") + DONE}, gap: 300 * time.Millisecond})
	done := make(chan answer, 1)
	go func() { done <- own.post(t, id, chatURL, "{}", k, v) }()
	held := 0
	for {
		select {
		case a := <-done:
			if a.status != 200 || a.err != nil || held < 100 || held >= len(frame) {
				t.Errorf("at most %d bytes were held, want the 100 that had come of a frame of %d; %d bytes arrived, %v", held, len(frame), len(a.body), a.err)
			}
			return
		default:
			held = max(held, own.s.metric("brownout_held_bytes"))
		}
	}
}

// pieces cuts a text into pieces of so many bytes.
func pieces(text string, size int) []string {
	var out []string
	for len(text) > size {
		out, text = append(out, text[:size]), text[size:]
	}
	return append(out, text)
}

// caseHugeEvent is C50: an event of 40 MB passes without being buffered, and where it is cut nothing is put behind it.
// In small pieces it is just above the bound, for the sake of time.
func caseHugeEvent(t *testing.T, e *caseEnv, id string) {
	huge, over := "data: "+strings.Repeat("x", 40<<20), "data: "+strings.Repeat("x", 1<<20)
	tail := "\n\ndata: [DONE]\n\n"
	for name, chunks := range map[string][]string{
		"whole": {huge + tail}, "in pieces": pieces(huge+tail, 100_003),
		"byte by byte": append([]string{over[:1<<20]}, pieces(over[1<<20:]+tail, 1)...),
	} {
		want := strings.Join(chunks, "")
		k, v := e.u.add(id+name, script{chunks: chunks})
		if a := e.post(t, id, genericPath, "{}", k, v); a.status != 200 || a.body != want || a.err != nil {
			t.Errorf("%s: %d of %d bytes, %v", name, len(a.body), len(want), a.err)
		}
	}
	before := e.counted(id, "ok")
	inChunks(over+tail, func(way string, s script) {
		if len(s.chunks) > 2 {
			return // byte by byte is above
		}
		k, v := e.u.add(id+way, s)
		if a := e.post(t, id, genericPath, "{}", k, v); a.status != 200 || a.body != over+tail || a.err != nil {
			t.Errorf("%s: %d of %d bytes, %v", way, len(a.body), len(over+tail), a.err)
		}
	})
	e.outcomes(t, id, "ok", before, 65)
	for name, chunks := range map[string][]string{"cut": {partial, huge}, "cut in pieces": pieces(partial+strings.Repeat(over, 4), 4099)} {
		k, v := e.u.add(id+name, script{chunks: chunks, end: cut, rest: 300 * time.Millisecond})
		if a := e.post(t, id, genericPath, "{}", k, v); a.err == nil || strings.Contains(a.body, "event: done") {
			t.Errorf("%s: %d bytes, %v, want a cut that shows", name, len(a.body), a.err)
		}
	}
	k, v := e.u.add(id+"cut later", script{chunks: []string{over + "\n\n" + partial, "data: hal"}, end: cut, rest: 300 * time.Millisecond})
	if a := e.post(t, id, genericPath, "{}", k, v); a.err != nil || a.body != over+"\n\n"+partial+seedFrame("upstream_truncated") {
		t.Errorf("cut after a boundary behind it: %d bytes, %v, ends in %q", len(a.body), a.err, a.body[max(0, len(a.body)-120):])
	}
}

// zipped is a text in gzip.
func zipped(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, text)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

// caseStaleEncoding is C52: compressed answers are asked for by nobody, and pass with their header if they come.
func caseStaleEncoding(t *testing.T, e *caseEnv, id string) {
	packed := zipped(t, CH("a")+FIN("stop")+DONE)
	for name, sc := range map[string]script{
		"json": {header: map[string]string{"content-type": "application/json"}}, "sse": {header: map[string]string{"content-type": "text/event-stream"}},
		"json 503": {status: 503, header: map[string]string{"content-type": "application/json"}},
	} {
		inChunks(packed, func(way string, s script) {
			s.status, s.header = sc.status, map[string]string{"content-type": sc.header["content-type"], "content-encoding": "gzip"}
			k, v := e.u.add(id+name+way, s)
			a := e.post(t, id, chatURL, "{}", k, v, "accept-encoding", "gzip, br")
			if a.body != packed || a.header.Get("content-encoding") != "gzip" || a.err != nil || a.status != max(sc.status, 200) {
				t.Errorf("%s, %s: %v", name, way, a)
			}
			e.u.mu.Lock()
			defer e.u.mu.Unlock()
			if got := e.u.seen[v].Get("accept-encoding"); got != "" {
				t.Errorf("%s: the upstream was asked for %q", name, got)
			}
		})
	}
}

// caseGzipStream is C54: a compressed stream that is cut shows as cut; one that is whole arrives byte for byte.
func caseGzipStream(t *testing.T, e *caseEnv, id string) {
	packed := zipped(t, CH("a")+FIN("stop")+DONE)
	for _, end := range []ending{clean, cut} {
		inChunks(packed, func(way string, s script) {
			s.header, s.end = map[string]string{"content-type": "text/event-stream", "content-encoding": "gzip"}, end
			s.rest = 300 * time.Millisecond
			k, v := e.u.add(fmt.Sprint(id, end, way), s)
			a := e.post(t, id, chatURL, "{}", k, v, "accept-encoding", "gzip")
			if a.body != packed || (a.err == nil) != (end == clean) {
				t.Errorf("%s, %s: %d of %d bytes, %v", end, way, len(a.body), len(packed), a.err)
			}
		})
	}
}
