package dialect

import (
	"testing"

	"github.com/envoy-brownout/brownout/internal/frame"
)

func TestByPath(t *testing.T) {
	for path, want := range map[string]ID{
		"/v1/chat/completions": Chat, "/chat/completions": Chat, "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21": Chat,
		"/api/v1/chat/completions/": Chat, "/v1beta/openai/chat/completions": Chat, "/v1/fim/completions": Chat,
		"/v1/completions": Completions, "/openai/deployments/x/completions": Completions,
		"/v1/responses": Responses, "/openai/responses": Responses, "/openai/v1/responses": Responses,
		"/v1/messages": Anthropic, "/anthropic/v1/messages": Anthropic,
		"/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict": Anthropic,
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse":                  Gemini, "/v1/models/g%3AgenerateContent": Gemini,
		"/api/chat": Ollama, "/ollama/api/generate": Ollama,
	} {
		if got, ok := ByPath(path); got != want || !ok {
			t.Errorf("%s: got %s, %t, want %s", path, got, ok, want)
		}
	}
	for _, path := range []string{"", "/", "*", "/v1/embeddings", "/v1/threads/t/messages", "/v1/messages/count_tokens", "/surveys/responses",
		"/v2/chat", "/generate_stream", "/v1/models/x:predict", "/publishers/meta/models/x:streamRawPredict", "/xcompletions"} {
		if got, ok := ByPath(path); got != Generic || ok {
			t.Errorf("%s: got %s, %t, want nothing", path, got, ok)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range IDs() {
		got, ok := ByName(id.String())
		if got != id || !ok || seen[id.String()] {
			t.Errorf("%d: ByName(%q) = %d, %t", id, id, got, ok)
		}
		seen[id.String()] = true
		if s := New(id, Options{}); s.ID() != id {
			t.Errorf("New(%s) is a %s", id, s.ID())
		}
		if id.NDJSON() != (id == Ollama) {
			t.Errorf("%s: NDJSON %t", id, id.NDJSON())
		}
	}
	if _, ok := ByName("else"); ok || ID(99).String() != "invalid" || What(99).String() != "invalid" {
		t.Error("names outside the enums must stay harmless")
	}
}

// TestTheFirstEventTellsTheDialect asks of every transcript that begins like its dialect.
func TestTheFirstEventTellsTheDialect(t *testing.T) {
	for _, tr := range transcripts(t) {
		var first frame.Fields
		split, found := frame.Splitter{}, false
		split.Feed([]byte(tr.stream), func(e frame.Event) bool {
			if f, _ := e.Parse(false, nil); f.HasData && len(f.Data) > 0 {
				first, found = f, true
			}
			return !found
		})
		switch tr.name {
		case "complete", "crlf", "c02_cut", "c02_no_evidence", "c25_cut_text", "c24_no_finish":
			if got, _ := ByEvent(first); got != tr.id {
				t.Errorf("%s/%s: got %s", tr.id, tr.name, got)
			}
		}
	}
	for _, data := range []string{"", "hello", "[DONE]", "{}", `{"type":"message_start"}`, "[]"} {
		if id, ok := ByEvent(frame.Fields{Data: []byte(data), HasData: true}); ok {
			t.Errorf("%s: got %s", data, id)
		}
	}
}

func TestFinishReasons(t *testing.T) {
	for word, want := range map[string]finish{
		"": finishNone, "stop": finishDone, "STOP": finishDone, "eos_token": finishDone, "pause_turn": finishDone, "length": finishCapped,
		"MODEL_LENGTH": finishCapped, "SPII": finishRefused, "RECITATION": finishRefused, "guardrail_intervened": finishRefused,
		"abort": finishEvicted, "client_cancelled": finishEvicted, "network_error": finishFailed, "ERROR": finishFailed, "TIMEOUT": finishFailed,
		"MALFORMED_FUNCTION_CALL": finishFailed, "never heard of it": finishCapped, "FINISH_REASON_UNSPECIFIED": finishNone,
		"a reason that goes on for longer than any reason anybody would give for anything": finishCapped,
	} {
		if got := reason([]byte(word)); got != want {
			t.Errorf("%q: got %d, want %d", word, got, want)
		}
	}
}
