package dialect

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// theTemplate is what the goldens show.
func theTemplate(id ID) Template {
	return Template{ID: id, Text: "We are at \"capacity\".\n", Model: "m", Created: time.Unix(1760000000, 0), Label: theLabel}
}

// templates are the variants of a dialect's template.
func templates(id ID) (names []string, all []Template) {
	add := func(name string, change func(*Template)) {
		t := theTemplate(id)
		change(&t)
		names, all = append(names, name), append(all, t)
	}
	add("document", func(*Template) {})
	add("stream", func(t *Template) { t.Stream = true })
	switch id {
	case Chat, Completions:
		add("stream with usage", func(t *Template) { t.Stream, t.IncludeUsage = true, true })
	case Gemini:
		add("pieces of an array", func(t *Template) { t.Path = "/v1beta/models/m:streamGenerateContent" })
	case Ollama:
		add("document of generate", func(t *Template) { t.Path = "/api/generate?x=1" })
		add("stream of generate", func(t *Template) { t.Path, t.Stream = "/api/generate", true })
	}
	return names, all
}

func TestTemplates(t *testing.T) {
	for _, id := range IDs() {
		var b strings.Builder
		names, all := templates(id)
		for i, tpl := range all {
			body, contentType := tpl.Append(nil)
			fmt.Fprintf(&b, "-- %s: %s --\n%s\n", names[i], contentType, body)
		}
		file := filepath.Join("testdata", id.String(), "template.golden")
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), b.String()); d != "" {
			t.Errorf("%s: want -, got +:\n%s", id, d)
		}
	}
}

// TestATemplateIsAWholeAnswerOfItsDialect lets the dialect's own reader judge it, whatever the text.
func TestATemplateIsAWholeAnswerOfItsDialect(t *testing.T) {
	for _, text := range []string{"hi", "\"\\\n\x00\u2028 data: [DONE]\n\nevent: x", "日本🙂", "}}]"} {
		for _, id := range IDs() {
			names, all := templates(id)
			for i, tpl := range all {
				tpl.Text, tpl.Model = text, "llama:8b \"x\""
				body, contentType := tpl.Append([]byte("X"))
				body = body[1:]
				if !tpl.Stream {
					checkDocument(t, id, names[i], text, body)
					continue
				}
				if want := map[bool]string{true: "application/x-ndjson", false: "text/event-stream"}[id.NDJSON()]; contentType != want {
					t.Errorf("%s %s: %s", id, names[i], contentType)
				}
				checkStreamed(t, id, names[i], text, body)
			}
		}
	}
}

func checkDocument(t *testing.T, id ID, name, text string, body []byte) {
	t.Helper()
	s := JudgeJSON(id, 200, body)
	if s.Class != outcome.OK || s.Usage != (Usage{}) || id != Generic && reason([]byte(s.Finish)) != finishDone {
		t.Errorf("%s %s: judged %+v: %s", id, name, s, body)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s %s: %v: %s", id, name, err, body)
	}
	if list, ok := v.([]any); ok {
		v = list[0]
	}
	meta := map[string]any{"tier": "small", "degraded": true, "reason": "queue_pressure", "deadline_ms": 2500.0, "complete": true}
	if d := cmp.Diff(meta, v.(map[string]any)["meta"]); d != "" {
		t.Errorf("%s %s: meta: %s", id, name, d)
	}
	if !holds(v, text) {
		t.Errorf("%s %s does not say %q: %s", id, name, text, body)
	}
}

// holds says whether a string is somewhere in a document.
func holds(v any, s string) bool {
	switch v := v.(type) {
	case string:
		return v == s
	case []any:
		for _, e := range v {
			if holds(e, s) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if holds(e, s) {
				return true
			}
		}
	}
	return false
}

func checkStreamed(t *testing.T, id ID, name, text string, body []byte) {
	t.Helper()
	checkLegal(t, id, body)
	s, units := play(id, Options{}, body)
	st := s.State()
	if !st.Complete || st.Class != outcome.OK || st.Usage != (Usage{}) || id != Generic && reason([]byte(st.Finish)) != finishDone || s.ID() != id {
		t.Errorf("%s %s: state %+v of %s", id, name, st, body)
	}
	said, keys := false, 0
	for _, u := range units {
		data := u.block
		if _, after, ok := strings.Cut(string(data), "data: "); ok && !id.NDJSON() {
			data = []byte(after)
		}
		var v any
		if json.Unmarshal(data, &v) != nil {
			continue // the sentinel
		}
		said = said || holds(v, text)
		if m, ok := v.(map[string]any); ok && m["tier"] == "small" && m["degraded"] == true && m["reason"] == "queue_pressure" && m["complete"] == true {
			keys++
		}
		if u.mark&(Withhold|Foreign|Failed) != 0 {
			t.Errorf("%s %s: %s of %s", id, name, u.mark, u.block)
		}
	}
	if !said || keys != 1 {
		t.Errorf("%s %s: text %t, %d labels in %s", id, name, said, keys, body)
	}
}

// TestALabelChangesNothingButTheLabel: a labelled stream is legal and tells the dialect's reader the same as before,
// and whoever reads the keys finds them once.
func TestALabelChangesNothingButTheLabel(t *testing.T) {
	for _, tr := range transcripts(t) {
		before, _ := play(tr.id, tr.opts, []byte(tr.stream))
		labelled, all := label(tr.id, tr.opts, []byte(tr.stream))
		was := before.State()
		if labelled == "" {
			if was.Complete && !was.Foreign && tr.name != "brownout_within" { // it says itself that it is a draft
				t.Errorf("%s/%s is complete and has no label", tr.id, tr.name)
			}
			continue
		}
		after, _ := play(tr.id, tr.opts, all)
		is := after.State()
		if before.ID() == Gemini || tr.opts.EvidenceEOF {
			// A finish reason that comes again holds once the stream ends; where nothing proved the end, the label does.
			was.Provisional, was.Finish = is.Provisional, is.Finish
		}
		if was != is && tr.opts.Terminal != Bare {
			t.Errorf("%s/%s: the label changes the state: %s", tr.id, tr.name, cmp.Diff(was, is))
		}
		if n := strings.Count(labelled, `"tier":"small","degraded":true,"reason":"queue_pressure","complete":true`); n != 1 {
			t.Errorf("%s/%s: %d labels in %s", tr.id, tr.name, n, labelled)
		}
		if tr.name != "done_event" { // its own done event says that it is not degraded: ours goes in front
			checkLegal(t, before.ID(), []byte(labelled))
		}
	}
}

// TestABareLabelIsTheFrameOfTheContract: callers that asked for it read it in every event stream.
func TestABareLabelIsTheFrameOfTheContract(t *testing.T) {
	const frame = "event: done\ndata: {\"tier\":\"small\",\"degraded\":true,\"reason\":\"queue_pressure\",\"complete\":true}\n\n"
	for _, id := range IDs() {
		if id.NDJSON() {
			continue
		}
		if got := string(New(id, Options{Terminal: Bare}).AppendLabel(nil, []byte("data: [DONE]\n\n"), theLabel)); got != frame+"data: [DONE]\n\n" {
			t.Errorf("%s: got %q", id, got)
		}
	}
}

// TestALabelLeavesWhatItCannotChange holds labels to units that take no member.
func TestALabelLeavesWhatItCannotChange(t *testing.T) {
	for _, c := range []struct {
		name, unit string
		id         ID
		in         bool // a frame goes in front instead
	}{
		{"labelled further in", `{"type":"response.completed","tier":"x","response":{}}`, Responses, false},
		{"a key twice", `{"type":"response.completed","type":"response.completed"}`, Responses, true},
		{"labelled further in", `{"choices":[],"tier":"x"}`, Chat, false},
		{"a key twice", `{"choices":[],"choices":[]}`, Chat, true},
	} {
		unit := "data: " + c.unit + "\n\n"
		got := string(New(c.id, Options{}).AppendLabel(nil, []byte(unit), theLabel))
		if !strings.HasSuffix(got, unit) || (len(got) > len(unit)) != c.in {
			t.Errorf("%s %s: got %q", c.id, c.name, got)
		}
	}
	line := "{\"done\":true,\"tier\":\"x\"}\r\n"
	if got := string(New(Ollama, Options{}).AppendLabel(nil, []byte(line), theLabel)); got != line {
		t.Errorf("ollama: got %q", got)
	}
	event := "\xEF\xBB\xBFid: 7\r\n: note\r\nevent: response.completed\r\ndata: {\"type\":\r\ndata: \"response.completed\"}\r\n\r\n"
	want := "id: 7\n: note\nevent: done\ndata: {\"type\": \"response.completed\",\"tier\":\"small\",\"degraded\":true,\"reason\":\"queue_pressure\",\"complete\":true}\n\n"
	if got := string(New(Responses, Options{}).AppendLabel(nil, []byte(event), theLabel)); got != want {
		t.Errorf("other lines of the event: got %q", got)
	}
}
