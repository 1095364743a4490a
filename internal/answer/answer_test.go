package answer

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

const (
	chunkA = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"日本語🙂"},"finish_reason":null}]}` + "\n\n"
	finish = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	abort  = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

func chat() Options { return Options{Kind: Stream, Dialect: dialect.Chat, Status: 200} }

// feed gives an answer all pieces and returns what went on, and whether a lie was met.
func feed(a *Answer, pieces ...string) (out string, lie bool) {
	for _, p := range pieces {
		f := a.Feed([]byte(p))
		out += string(f.Out)
		if f.Lie {
			return out, true
		}
	}
	return out, false
}

func TestAWholeStreamPassesByteForByteHoweverItIsCut(t *testing.T) {
	for name, text := range map[string]string{
		"LF": chunkA + ": ping\n\n" + chunkA + finish + done, "CRLF": strings.ReplaceAll(chunkA+finish+done, "\n", "\r\n"),
		"BOM": "\xEF\xBB\xBF" + chunkA + finish + done, "no space": strings.ReplaceAll(chunkA+finish+done, "data: ", "data:"),
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a := New(chat())
				out, lie := feed(a, pieces(t, text)...)
				rest, complete := a.Finish(true)
				if out+string(rest) != text || lie || !complete || a.State().Class != outcome.OK {
					t.Fatalf("out %q + %q, lie %t, complete %t, state %+v", out, rest, lie, complete, a.State())
				}
			})
		})
	}
}

// pieces cuts text whole, byte by byte or at random.
func pieces(t *rapid.T, text string) []string {
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		return []string{text}
	case 1:
		out := make([]string, len(text))
		for i := range len(text) {
			out[i] = text[i : i+1]
		}
		return out
	}
	cuts := rapid.SliceOfN(rapid.IntRange(0, len(text)), 0, 8).Draw(t, "cuts")
	slices.Sort(cuts)
	var out []string
	last := 0
	for _, c := range append(cuts, len(text)) {
		out = append(out, text[last:c])
		last = c
	}
	return out
}

func TestAnEndingFollowsAtABoundaryHoweverItIsCut(t *testing.T) {
	text := chunkA + chunkA + `data: {"choices":[{"del`
	rapid.Check(t, func(t *rapid.T) {
		a := New(chat())
		out, _ := feed(a, pieces(t, text)...)
		ending, honest := a.End(dialect.Ending{Tier: "full", Reason: outcome.DegradedUpstreamTruncated})
		if out != chunkA+chunkA || !honest || !strings.HasPrefix(string(ending), "event: done\n") || !strings.HasSuffix(string(ending), done) {
			t.Fatalf("out %q, honest %t, ending %q", out, honest, ending)
		}
	})
}

func TestALieIsNotPassedOn(t *testing.T) {
	a := New(chat())
	out, lie := feed(a, chunkA, abort+done)
	why, o := a.Truth()
	if out != chunkA || !lie || why != outcome.DegradedPreempted || o != outcome.Evicted {
		t.Errorf("out %q, lie %t, truth %s %s", out, lie, why, o)
	}
	a = New(chat())
	out, lie = feed(a, chunkA, done)
	why, o = a.Truth()
	if out != chunkA || !lie || why != outcome.DegradedUpstreamTruncated || o != outcome.Truncated {
		t.Errorf("a sentinel alone: out %q, lie %t, truth %s %s", out, lie, why, o)
	}
}

func TestTheUnfinishedUnitAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		complete         bool
	}{
		{"half an event is dropped", chunkA + `data: {"cho`, chunkA, false},
		{"a whole line lacking its blank line gets it", chunkA + strings.TrimSuffix(finish, "\n\n"), chunkA + finish, true},
		{"…or half of it", chunkA + strings.TrimSuffix(finish, "\n"), chunkA + finish, true},
		{"a sentinel passes as it is", chunkA + finish + "data: [DONE]", chunkA + finish + "data: [DONE]", true},
		{"what follows a complete answer is kept", chunkA + finish + ": bye", chunkA + finish + ": bye", true},
	} {
		a := New(chat())
		out, _ := feed(a, c.text)
		rest, complete := a.Finish(true)
		if out+string(rest) != c.want || complete != c.complete {
			t.Errorf("%s: got %q complete %t", c.name, out+string(rest), complete)
		}
	}
}

func TestAUnitAboveTheBoundPassesAndTakesNoEnding(t *testing.T) {
	o := chat()
	o.MaxUnit = 64
	a := New(o)
	big := "data: " + strings.Repeat("x", 200)
	f := a.Feed([]byte(big))
	if string(f.Out) != big || !f.Ready || a.Held() != 0 {
		t.Errorf("out %d bytes, ready %t, held %d", len(f.Out), f.Ready, a.Held())
	}
	if _, honest := a.End(dialect.Ending{}); honest {
		t.Error("an ending in the middle of an event")
	}
	a.Feed([]byte("\n\n"))
	if _, honest := a.End(dialect.Ending{}); !honest {
		t.Error("no ending at the next boundary")
	}
}

func TestAnotherDialectThanThePathsIsGeneric(t *testing.T) {
	a := New(chat())
	feed(a, "data: {\"delta\":\"partial \"}\n\n")
	ending, _ := a.End(dialect.Ending{Tier: "small", Reason: outcome.DegradedDeadline})
	if want := "event: done\ndata: {\"tier\":\"small\",\"degraded\":true,\"reason\":\"deadline\",\"complete\":false}\n\n"; string(ending) != want {
		t.Errorf("got %q, want the seed's frame", ending)
	}
}

func TestJSONIsCollectedUpToTheBound(t *testing.T) {
	a := New(Options{Kind: JSON, Dialect: dialect.Chat, Status: 200})
	if out, _ := feed(a, `{"choices":[`, `]}`); out != "" || !a.Collected() || a.Held() != 14 || !a.Whole() {
		t.Errorf("out %q, collected %t, held %d", out, a.Collected(), a.Held())
	}
	rest, complete := a.Finish(true)
	if string(rest) != `{"choices":[]}` || !complete || a.State().Class != outcome.Empty {
		t.Errorf("rest %q, class %s", rest, a.State().Class)
	}
	a = New(Options{Kind: JSON, Dialect: dialect.Chat, Status: 200})
	big := bytes.Repeat([]byte("x"), MaxJSON)
	a.Feed(big)
	f := a.Feed([]byte("y"))
	if len(f.Out) != MaxJSON+1 || !f.Ready || a.Collected() || a.Held() != 0 {
		t.Errorf("%d bytes out, ready %t, collected %t", len(f.Out), f.Ready, a.Collected())
	}
	if f := a.Feed([]byte("z")); string(f.Out) != "z" {
		t.Errorf("later bytes: %q", f.Out)
	}
}

func TestADocumentThatIsNoAnswer(t *testing.T) {
	fault := `{"error":{"message":"full","code":503}}`
	for _, c := range []struct {
		name     string
		o        Options
		text     string
		complete bool
		fault    string
	}{
		{"half a document", Options{Kind: JSON, Dialect: dialect.Chat, Status: 200}, `{"choices":[{"mess`, false, ""},
		{"half an error", Options{Kind: JSON, Dialect: dialect.Chat, Status: 500}, `{"error":{"mess`, true, ""},
		{"what no standard knows", Options{Kind: JSON, Dialect: dialect.Chat, Status: 200}, `{"logprobs":NaN}`, true, ""},
		{"a list of any kind", Options{Kind: JSON, Status: 200}, `[1,2]`, true, ""},
		{"an error", Options{Kind: JSON, Dialect: dialect.Chat, Status: 200}, fault, true, fault},
		{"an error with its status", Options{Kind: JSON, Dialect: dialect.Chat, Status: 503}, fault, true, ""},
		{"of no dialect", Options{Kind: JSON, Status: 200}, fault, true, ""},
	} {
		a := New(c.o)
		feed(a, c.text)
		rest, complete := a.Finish(true)
		if string(rest) != c.text || complete != c.complete || string(a.FirstError()) != c.fault {
			t.Errorf("%s: rest %q, complete %t, first error %q", c.name, rest, complete, a.FirstError())
		}
	}
}

func TestAnErrorInPlaceOfAnAnswerIsKept(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"event":    {"data: {\"error\":{\"code\":503,\"message\":\"full\"}}\n\n", `{"error":{"code":503,"message":"full"}}`},
		"unframed": {"{\"error\":\n {\"code\":400}}", "{\"error\":\n {\"code\":400}}"},
		"later":    {chunkA + "data: {\"error\":{\"code\":503,\"message\":\"full\"}}\n\n", ""},
	} {
		a := New(chat())
		feed(a, c.text)
		a.Finish(true)
		if string(a.FirstError()) != c.want || !a.State().Error {
			t.Errorf("%s: first error %q, state %+v", name, a.FirstError(), a.State())
		}
	}
}

func BenchmarkFeedChatChunk(b *testing.B) {
	a := New(chat())
	p := []byte(chunkA)
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		a.Feed(p)
	}
}

func TestFeedOfAWholeEventDoesNotAllocate(t *testing.T) {
	a := New(chat())
	p := []byte(chunkA)
	a.Feed(p)
	if n := testing.AllocsPerRun(200, func() { a.Feed(p) }); n > 1 {
		t.Errorf("Feed allocates %v times, want at most 1 (its closure)", n)
	}
}
