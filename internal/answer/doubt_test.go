package answer

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// TestABodyThatMayBeADocumentOrLines is what `…/api/chat` may answer as application/json.
func TestABodyThatMayBeADocumentOrLines(t *testing.T) {
	for _, c := range []struct {
		name, text string
		kind       Kind
		complete   bool
		class      outcome.Outcome
	}{
		{"another service's document", `{"reply":"hi"}`, JSON, true, outcome.OK},
		{"…with a line end", "{\"reply\":\"hi\"}\n\n", JSON, true, outcome.OK},
		{"…with a member of Ollama's", "{\"items\":[],\"done\":true}\n", JSON, true, outcome.OK},
		{"…pretty-printed", "{\n  \"reply\": \"hi\"\n}\n", JSON, true, outcome.OK},
		{"…a list", "[\n1,\n2]\n", JSON, true, outcome.OK},
		{"…half of it", `{"reply":"h`, JSON, false, outcome.Truncated},
		{"…an error", `{"error":{"message":"full","code":503}}`, JSON, true, outcome.Overloaded},
		{"another service's lines", "{\"reply\":\"hi\"}\n{\"reply\":\"ho\"}\n", Stream, true, outcome.Unknown},
		{"…behind a blank line", "\n{\"reply\":\"hi\"}\n{\"reply\":\"ho\"}", Stream, true, outcome.Unknown},
		{"Ollama's document", `{"model":"m","message":{"content":"hi"},"done":true,"done_reason":"stop"}`, JSON, true, outcome.OK},
		{"…pretty-printed", "{\n  \"model\": \"m\",\n  \"response\": \"\",\n  \"done\": true\n}\n", JSON, true, outcome.Empty},
		{"…with a line end", "{\"response\":\"x\",\"done\":true,\"done_reason\":\"length\"}\n", Stream, true, outcome.Capped},
		{"Ollama's lines", ollamaText + ollamaDone, Stream, true, outcome.OK},
		{"…without the last line end", strings.TrimSpace(ollamaText + ollamaDone), Stream, true, outcome.OK},
		{"…without the last line", ollamaText, Stream, false, outcome.Unknown},
		{"…or its line end", strings.TrimSpace(ollamaText), Stream, false, outcome.Unknown},
		{"…behind another's", "{\"status\":\"pulling\"}\n" + ollamaText, Stream, false, outcome.Unknown},
		{"a page", "<html>\n</html>\n", JSON, true, outcome.UpstreamError},
	} {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a := New(Options{Kind: Stream, Dialect: dialect.Ollama, Ambiguous: true, Status: 200})
				out, lie := feed(a, pieces(t, c.text)...)
				rest, complete := a.Finish(true)
				if got := out + string(rest); got != c.text || lie || complete != c.complete || a.Kind() != c.kind || a.State().Class != c.class {
					t.Fatalf("got %q, lie %t, complete %t, kind %d, state %+v", got, lie, complete, a.Kind(), a.State())
				}
			})
		})
	}
}

func TestLinesAreWatchedAsSoonAsTheyTell(t *testing.T) {
	ambiguous := Options{Kind: Stream, Dialect: dialect.Ollama, Ambiguous: true, Status: 200}
	a := New(ambiguous)
	if f := a.Feed([]byte(ollamaText)); string(f.Out) != ollamaText || !f.Ready || f.Marks != dialect.Data|dialect.Content || a.Kind() != Stream {
		t.Errorf("out %q, ready %t, marks %d, kind %d", f.Out, f.Ready, f.Marks, a.Kind())
	}
	if ending, honest := a.End(truncated); !honest || !strings.HasSuffix(string(ending), "\"complete\":false}\n") {
		t.Errorf("ending %q, honest %t", ending, honest)
	}
	a = New(ambiguous)
	if f := a.Feed([]byte("{\"a\":1}\n")); len(f.Out) > 0 || f.Ready || a.Kind() != JSON || !a.Collected() {
		t.Errorf("out %q, ready %t, kind %d", f.Out, f.Ready, a.Kind())
	}
	f := a.Feed([]byte("{\"a\":2}\n"))
	if string(f.Out) != "{\"a\":1}\n{\"a\":2}\n" || f.Marks&dialect.Content == 0 || a.Kind() != Stream || a.Over() {
		t.Errorf("out %q, marks %d, kind %d, over %t", f.Out, f.Marks, a.Kind(), a.Over())
	}
	if _, honest := a.End(truncated); honest {
		t.Error("a line of Ollama behind another service's")
	}
	if _, complete := a.Finish(false); complete {
		t.Error("a cut passes for an end")
	}
	a = New(ambiguous)
	if f := a.Feed([]byte("{" + strings.Repeat(" ", MaxJSON))); !f.Ready || a.Collected() {
		t.Errorf("a first line above the bound is held: %d bytes", a.Held())
	}
}

func TestAPinnedDialectIsDemandedOfItsLines(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		o := streamOf(dialect.Ollama)
		o.Pinned = pinned
		a := New(o)
		feed(a, "{\"a\":1}\n")
		if _, complete := a.Finish(true); complete == pinned {
			t.Errorf("pinned %t: complete %t", pinned, complete)
		}
	}
}
