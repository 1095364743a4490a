package answer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

const keys = `"tier":"small","degraded":true,"reason":"queue_pressure","complete":true`

var small = dialect.Label{Tier: "small", Reason: outcome.DegradedQueuePressure, DeadlineMs: 2500}

// labelledFinish is finish with the label on it.
var labelledFinish = "event: done\n" + strings.Replace(finish, "]}\n", "],"+keys+"}\n", 1)

func labelled(o Options) Options {
	o.Label = &small
	return o
}

// stream is a stream of an upstream in dialect's transcripts.
type stream struct {
	id   dialect.ID
	name string
	body string
}

func streams(t *testing.T) (all []stream) {
	t.Helper()
	files, err := filepath.Glob("../dialect/testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(raw), "-- stream --\n")
		body, _, _ := strings.Cut(rest, "-- marks --\n")
		id, ok := dialect.ByName(filepath.Base(filepath.Dir(f)))
		if !ok {
			t.Fatalf("%s is of no dialect", f)
		}
		if !strings.Contains(head, "# options:") {
			all = append(all, stream{id, f, body})
		}
	}
	return all
}

// pass lets an answer pass in pieces; ok is false for a stream that ends with a lie or without evidence.
func pass(o Options, pieces ...string) (out string, a *Answer, ok bool) {
	a = New(o)
	out, lie := feed(a, pieces...)
	if lie {
		return out, a, false
	}
	rest, complete := a.Finish(true)
	return out + string(rest), a, complete
}

// TestEveryCompleteStreamIsLabelledOnceHoweverItIsCut compares any split with the whole, and a replay with both.
func TestEveryCompleteStreamIsLabelledOnceHoweverItIsCut(t *testing.T) {
	for _, s := range streams(t) {
		t.Run(filepath.Base(filepath.Dir(s.name))+"/"+filepath.Base(s.name), func(t *testing.T) { checkLabelled(t, s) })
	}
}

func checkLabelled(t *testing.T, s stream) {
	o := Options{Kind: Stream, Dialect: s.id, Status: 200, Keep: 1 << 20}
	plain, bare, ok := pass(o, s.body)
	whole, a, _ := pass(labelled(o), s.body)
	n := strings.Count(whole, keys)
	switch isDraft := strings.Contains(s.name, "brownout_within"); { // of a brownout further in, which says so itself
	case ok && !isDraft && isAnswer(bare.State()) && n != 1:
		t.Errorf("%d labels in %s", n, whole)
	case !ok && n != 0 && !strings.Contains(s.name, "late_choice") && !strings.Contains(s.name, "taken_back"): // what had finished was all there was until then
		t.Errorf("an incomplete answer is labelled complete: %s", whole)
	}
	kept, isKept := a.Kept()
	if want := ok && !bare.State().Error; isKept != want || isKept && string(kept) != plain {
		t.Errorf("kept %t %q, want %t %q", isKept, kept, want, plain)
	}
	contentType := "text/event-stream"
	if s.id.NDJSON() {
		contentType = "application/x-ndjson; charset=utf-8"
	}
	if again := Relabel(a.Dialect(), contentType, kept, dialect.Options{}, &small); isKept && string(again) != whole {
		t.Errorf("labelled for a replay %q, at first %q", again, whole)
	}
	if isKept && string(kept) != plain {
		t.Error("labelling for a replay changed what is kept")
	}
	if t.Failed() {
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		if got, _, _ := pass(labelled(o), pieces(t, s.body)...); got != whole {
			t.Fatalf("in pieces %q, whole %q", got, whole)
		}
	})
}

func TestTheLabelGoesOnTheUnitThatEndsTheAnswer(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a finish", chunkA + finish + done, chunkA + labelledFinish + done},
		{"CRLF", strings.ReplaceAll(chunkA+finish+done, "\n", "\r\n"), strings.ReplaceAll(chunkA, "\n", "\r\n") + labelledFinish + strings.ReplaceAll(done, "\n", "\r\n")},
		{"a finish that lacks its blank line", chunkA + strings.TrimRight(finish, "\n"), chunkA + labelledFinish},
		{"what follows stays behind it", chunkA + finish + ": bye", chunkA + labelledFinish + ": bye"},
		{"none of an unfinished answer", chunkA, chunkA},
	} {
		if got, _, _ := pass(labelled(chat()), c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestErrorsAreNotLabelled(t *testing.T) {
	for name, o := range map[string]Options{
		"a stream of failure":   {Kind: Stream, Dialect: dialect.Chat, Status: 500},
		"a document of failure": {Kind: JSON, Dialect: dialect.Chat, Status: 429},
		"an error at 200":       {Kind: JSON, Dialect: dialect.Chat, Status: 200},
	} {
		text := `{"error":{"code":503,"message":"full"}}`
		if o.Kind == Stream {
			text = chunkA + finish + done
		}
		if got, _, _ := pass(labelled(o), text); got != text {
			t.Errorf("%s: got %q", name, got)
		}
	}
	failed := chunkA + "data: {\"error\":{\"code\":503,\"message\":\"full\"}}\n\n"
	if got, _, _ := pass(labelled(chat()), failed); got != failed {
		t.Errorf("an error in a stream: got %q", got)
	}
}

func TestADocumentIsLabelledInMeta(t *testing.T) {
	const meta = `"meta":{"tier":"small","degraded":true,"reason":"queue_pressure","deadline_ms":2500,"complete":true}`
	answer := `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}], "n":1.0 }`
	large := `{"choices":[{"message":{"content":"` + strings.Repeat("x", MaxJSON) + `"},"finish_reason":"stop"}]}`
	for _, c := range []struct {
		name, text, want string
		status           int
	}{
		{"an answer", answer, strings.Replace(answer, " }", " ,"+meta+"}", 1), 200},
		{"one that has a meta", `{"choices":[],"meta":null}`, "", 200},
		{"a key twice", `{"choices":[],"choices":[]}`, "", 200},
		{"a list", `[{"object":"model"}]`, "", 200},
		{"half a document", `{"choices":[`, "", 200},
		{"no JSON", `<html>`, "", 200},
		{"a redirect", answer, "", 302},
		{"too large", large, "", 200},
	} {
		o := Options{Kind: JSON, Dialect: dialect.Chat, Status: c.status, Keep: 1 << 10}
		if c.want == "" {
			c.want = c.text
		}
		got, a, complete := pass(labelled(o), c.text[:len(c.text)/2], c.text[len(c.text)/2:])
		if got != c.want {
			t.Errorf("%s: got %.200q", c.name, got)
		}
		kept, ok := a.Kept()
		if want := complete && len(c.text) <= 1<<10; ok != want || ok && string(kept) != c.text {
			t.Errorf("%s: kept %t %q", c.name, ok, kept)
		}
		if c.status != 200 {
			continue
		}
		if again := Relabel(dialect.Chat, "application/json", []byte(c.text), dialect.Options{}, &small); string(again) != c.want {
			t.Errorf("%s: labelled for a replay: %.200q", c.name, again)
		}
	}
}

func TestAnAnswerThatIsNotStreamedByOllamaHasBothLabels(t *testing.T) {
	for _, ambiguous := range []bool{false, true} {
		for _, text := range []string{`{"model":"m","message":{"role":"assistant","content":"hi"},"done":true,"done_reason":"stop"}`, "{\n  \"response\": \"hi\",\n  \"done\": true\n}"} {
			for _, end := range []string{"", "\n"} {
				if !ambiguous && strings.Contains(text, "\n") {
					continue
				}
				o := Options{Kind: Stream, Dialect: dialect.Ollama, Ambiguous: ambiguous, Status: 200, Label: &small, Keep: 1 << 10}
				got, a, _ := pass(o, text+end)
				if doc := gjson.Parse(got); doc.Get("tier").Str != "small" || !doc.Get("meta.complete").Bool() || doc.Get("meta.deadline_ms").Int() != 2500 || !strings.HasSuffix(got, "}"+end) {
					t.Errorf("ambiguous %t: got %q", ambiguous, got)
				}
				if kept, ok := a.Kept(); !ok || ambiguous && string(Relabel(dialect.Ollama, "application/json", kept, dialect.Options{}, &small)) != got {
					t.Errorf("kept %t %q", ok, kept)
				}
			}
		}
	}
}

func TestLabelEndIsWhatIsMissingOfTheLabelOfAnOpenStream(t *testing.T) {
	a := New(labelled(chat()))
	if feed(a, chunkA); a.LabelEnd() != nil {
		t.Error("an unfinished answer is labelled complete")
	}
	if feed(a, finish); a.LabelEnd() != nil {
		t.Error("the label comes twice")
	}
	g := New(Options{Kind: Stream, Dialect: dialect.Gemini, Status: 200, Label: &small})
	feed(g, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"index\":0}]}\n\n", "data: {\"candidates\":[{\"finishReason\":\"STOP\",\"index\":0}]}\n\n", "data: {\"can")
	if got := string(g.LabelEnd()); strings.Count(got, keys) != 1 || !strings.HasPrefix(got, "data: ") || strings.Contains(got, "event:") {
		t.Errorf("got %q", got)
	}
	if g.LabelEnd() != nil {
		t.Error("the label comes twice")
	}
	if New(chat()).LabelEnd() != nil || New(Options{Label: &small}).LabelEnd() != nil {
		t.Error("a label nobody asked for, or in a body nobody reads")
	}
}

func TestNothingIsKeptOfWhatIsTooLargeOrNotWhole(t *testing.T) {
	o := chat()
	text := chunkA + finish + done
	for _, c := range []struct {
		name string
		keep int
		text string
		ok   bool
	}{
		{"whole", len(text), text, true}, {"one byte too large", len(text) - 1, text, false}, {"nothing asked for", 0, text, false},
		{"no finish", 1 << 20, chunkA, false}, {"a lie", 1 << 20, chunkA + abort + done, false}, {"C04: a sentinel alone", 1 << 20, chunkA + done, false},
	} {
		o.Keep = c.keep
		_, a, _ := pass(o, c.text)
		if kept, ok := a.Kept(); ok != c.ok || ok && string(kept) != c.text {
			t.Errorf("%s: kept %t %q", c.name, ok, kept)
		}
	}
	a := New(Options{Kind: Opaque, Keep: 10})
	feed(a, "ab", "cd")
	if _, ok := a.Kept(); ok {
		t.Error("kept before its end")
	}
	a.Finish(true)
	if kept, ok := a.Kept(); !ok || string(kept) != "abcd" {
		t.Errorf("opaque: kept %t %q", ok, kept)
	}
	a = New(Options{Kind: Opaque, Keep: 10})
	feed(a, "ab")
	if a.Finish(false); a.kept.buf == nil {
		t.Error("nothing was kept at all")
	} else if _, ok := a.Kept(); ok {
		t.Error("a cut body is kept as whole")
	}
}

func TestRelabelLeavesTheKeptBodyAlone(t *testing.T) {
	body := []byte(chunkA + finish + done)
	was := bytes.Clone(body)
	if got := Relabel(dialect.Chat, "text/event-stream", body, dialect.Options{}, nil); &got[0] != &body[0] {
		t.Error("without a label the body is copied")
	}
	if got := Relabel(dialect.Chat, "text/event-stream; charset=utf-8", body, dialect.Options{}, &small); string(got) != chunkA+labelledFinish+done || !bytes.Equal(body, was) {
		t.Errorf("got %q, body %q", got, body)
	}
	open := "data: {\"delta\":\"a\"}\n\n"
	if got, want := string(Relabel(dialect.Generic, "text/event-stream", []byte(open), dialect.Options{}, &small)), open+"event: done\ndata: {"+keys+"}\n\n"; got != want {
		t.Errorf("a service that sends no evidence: got %q", got)
	}
	for contentType, text := range map[string]string{"image/png": "x", "application/json": "[1]", "": "{}"} {
		if got := Relabel(dialect.Generic, contentType, []byte(text), dialect.Options{}, &small); string(got) != text {
			t.Errorf("%s: got %q", contentType, got)
		}
	}
}

// TestALabelledStreamIsFramedAsBefore: what a client's splitter makes of a labelled stream ends at a boundary.
func TestALabelledStreamIsFramedAsBefore(t *testing.T) {
	for _, s := range streams(t) {
		out, _, ok := pass(labelled(Options{Kind: Stream, Dialect: s.id, Status: 200}), s.body)
		if !ok {
			continue
		}
		split := frame.Splitter{}
		if s.id.NDJSON() {
			split.Kind = frame.NDJSON
		}
		split.Feed([]byte(out), func(frame.Event) bool { return true })
		if !split.AtBoundary() {
			t.Errorf("%s ends inside a unit: %q", s.name, split.Tail())
		}
	}
}

func TestALabelWaitingCostsNoAllocation(t *testing.T) {
	a := New(labelled(chat()))
	p := []byte(chunkA)
	a.Feed(p)
	if n := testing.AllocsPerRun(200, func() { a.Feed(p) }); n > 1 {
		t.Errorf("Feed allocates %v times, want at most 1 (its closure)", n)
	}
}
