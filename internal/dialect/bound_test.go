package dialect

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/jsonedit"
)

// contentUnit is a unit of content of about 200 bytes.
func contentUnit(id ID) string {
	switch id {
	case Chat:
		return `{"id":"chatcmpl-BabcdefghijklmnopqrstuvwxyZ01","object":"chat.completion.chunk","created":1760000000,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}`
	case Completions:
		return `{"id":"cmpl-BabcdefghijklmnopqrstuvwxyZ01","object":"text_completion","created":1760000000,"model":"gpt-3.5-turbo-instruct","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}`
	case Responses:
		return `{"type":"response.output_text.delta","sequence_number":17,"item_id":"msg_67c9fdcf37fc8190ba82116e33fb28c507b8b0ad4e5eb654","output_index":0,"content_index":0,"delta":" word","logprobs":[],"obfuscation":"abc"}`
	case Anthropic:
		return `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word and another word and another word and another word and another word and another word"}}`
	case Gemini:
		return `{"candidates":[{"content":{"parts":[{"text":" word"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15},"modelVersion":"gemini-2.5-flash"}`
	case Ollama:
		return `{"model":"llama3.2","created_at":"2026-10-01T08:52:19.385406455Z","message":{"role":"assistant","content":" word and another word and another word and another word"},"done":false}` + "\n"
	}
	return `{"delta":" word and another word and another word and another word and another word and another word"}`
}

func BenchmarkObserve(b *testing.B) {
	for _, id := range IDs() {
		b.Run(id.String(), func(b *testing.B) {
			unit := []byte(contentUnit(id))
			f := frame.Fields{Data: unit, HasData: true}
			s := New(id, Options{})
			b.ReportAllocs()
			b.SetBytes(int64(len(unit)))
			for b.Loop() {
				s.Observe(f, unit)
			}
		})
	}
}

func TestAContentUnitCostsNoAllocation(t *testing.T) {
	for _, id := range IDs() {
		unit := []byte(contentUnit(id))
		f := frame.Fields{Data: unit, HasData: true}
		s := New(id, Options{})
		if m := s.Observe(f, unit); m != Data|Content {
			t.Fatalf("%s: the unit is %s", id, m)
		}
		if n := testing.AllocsPerRun(200, func() { s.Observe(f, unit) }); n != 0 {
			t.Errorf("%s: %v allocations", id, n)
		}
	}
}

// hostile are units that would like to be remembered; %d is a number that differs in each.
var hostile = map[ID][]string{
	Chat: {`{"id":"` + strings.Repeat("x", 1<<16) + `%d","created":` + strings.Repeat("1", 17) + `,"choices":[{"index":%[1]d,"delta":{"content":"x","tool_calls":[{}]}}]}`,
		`{"choices":[{"index":0,"finish_reason":"` + strings.Repeat("y", 1<<16) + `%d"}]}`},
	Completions: {`{"model":"` + strings.Repeat("x", 1<<16) + `%d","choices":[{"index":%[1]d,"text":"x"}]}`},
	Responses: {`{"type":"response.created","response":{"x":"` + strings.Repeat("x", 1<<18) + `%d"}}`,
		`{"type":"response.output_item.added","output_index":%d,"item":{"type":"message","id":"` + strings.Repeat("x", 1<<16) + `"}}`,
		`{"type":"response.output_text.delta","output_index":%d,"delta":"` + strings.Repeat("x", 1<<16) + `"}`,
		`{"type":"response.output_item.done","output_index":%d,"item":{"type":"message","text":"` + strings.Repeat("x", 1<<16) + `"}}`},
	Anthropic: {`{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":"x"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"` + strings.Repeat("y", 1<<16) + `%d"}}`},
	Gemini:  {`{"candidates":[{"index":%d,"finishReason":"` + strings.Repeat("y", 1<<16) + `","content":{"parts":[{"text":"x"}]}}]}`},
	Ollama:  {`{"model":"` + strings.Repeat("x", 1<<16) + `%d","created_at":"` + strings.Repeat("x", 1<<16) + `","message":{"content":"x"}}`},
	Generic: {`{"x":"` + strings.Repeat("x", 1<<16) + `%d"}`},
}

func TestMemoryIsBoundedWhateverTheUpstreamSends(t *testing.T) {
	const most = maxResponse + 2*maxOutput + maxOpen*(maxHead+256)
	for _, id := range IDs() {
		s := New(id, Options{})
		before := heap()
		for i := range 400 {
			for _, h := range hostile[id] {
				unit := fmt.Appendf(nil, h, i)
				s.Observe(frame.Fields{Data: unit, HasData: true}, unit)
			}
		}
		if grown := heap() - before; grown > most {
			t.Errorf("%s keeps %d bytes", id, grown)
		}
		if n := len(s.AppendEnding(nil, atDeadline)); n > most {
			t.Errorf("%s: an ending of %d bytes", id, n)
		}
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestDocumentsNestedTooDeepAreNotRead(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, c := range []struct {
		doc  []byte
		want bool
	}{
		{deep(jsonedit.MaxDepth), true}, {deep(jsonedit.MaxDepth + 1), false}, {deep(1 << 20), false},
		{[]byte(`"` + strings.Repeat("[", 1<<10) + `\""`), true},
		{[]byte("[" + strings.Repeat("[],", 1<<10) + "[]]"), true},
		{nil, false}, {[]byte(" "), false}, {[]byte("{"), false},
	} {
		if _, ok := parse(c.doc); ok != c.want {
			t.Errorf("%.20s… (%d bytes): read %t", c.doc, len(c.doc), ok)
		}
	}
}

func TestTextIsReadWhereItLies(t *testing.T) {
	doc, ok := parse([]byte(` {"a" : "x\"y\\" , "n":12, "e":"", "z":null,"\u0062":[ 1 , {"c":"]"} ], "a2":-1, "f":false,"a":"last"} `))
	if !ok {
		t.Fatal("no JSON")
	}
	var keys []string
	for m := doc.members(); m.next(); {
		keys = append(keys, string(m.key)+"="+string(m.value))
	}
	if got, want := strings.Join(keys, " "), `a="x\"y\\" n=12 e="" z=null b=[ 1 , {"c":"]"} ] a2=-1 f=false a="last"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !doc.get("a").is("last") || doc.get("b").quoted() || doc.get("none") != nil || doc.get("e").set() || doc.get("z").set() || doc.get("f").set() {
		t.Error("a member is misread")
	}
	if n, ok := doc.get("a2").number(); ok {
		t.Errorf("-1 is the count %d", n)
	}
	if got := string(jsonedit.AppendQuoted(nil, "a\"\\\n\x1f\xff é")); got != `"a\"\\\n\u001f`+"\uFFFD é\"" || !bytes.Equal(text(`"`+"x"+`"`).inner(), []byte("x")) {
		t.Errorf("got %s", got)
	}
}
