package answer

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

const (
	geminiText = `data: {"candidates":[{"content":{"parts":[{"text":"a"}],"role":"model"},"index":0}]}` + "\n\n"
	geminiStop = `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}]}` + "\n\n"
	geminiEnd  = `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}],"tier":"full","degraded":true,"reason":"upstream_truncated","complete":false}` + "\n\n"

	ollamaText = `{"model":"m","created_at":"t","message":{"role":"assistant","content":"a"},"done":false}` + "\n"
	ollamaDone = `{"model":"m","created_at":"t","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}` + "\n"

	messageStop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	message     = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n"
	messageReason = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n"

	created   = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"object\":\"response\",\"status\":\"in_progress\",\"output\":[]}}\n\n"
	completed = "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[]}}\n\n"
)

var truncated = dialect.Ending{Tier: "full", Reason: outcome.DegradedUpstreamTruncated}

func streamOf(id dialect.ID) Options { return Options{Kind: Stream, Dialect: id, Status: 200} }

// TestOnlyTheLastWordIsOne feeds a stream in two pieces: the second is the last word, or is not.
func TestOnlyTheLastWordIsOne(t *testing.T) {
	cancelled := strings.ReplaceAll(completed, "completed", "cancelled")
	fault := "data: {\"error\":{\"message\":\"full\",\"code\":503}}\n\n"
	for _, c := range []struct {
		name        string
		id          dialect.ID
		first, then string
		want        bool
	}{
		{"chat, a finish reason", dialect.Chat, chunkA, finish, false},
		{"chat, a sentinel", dialect.Chat, chunkA + finish, done, true},
		{"chat, both at once", dialect.Chat, chunkA, finish + done, true},
		{"chat, a ping behind it", dialect.Chat, chunkA + finish + done, ": x\n\n", false},
		{"chat, a sentinel that is withheld", dialect.Chat, chunkA, done, false},
		{"chat, an abort", dialect.Chat, chunkA, abort, false},
		{"chat, an error", dialect.Chat, chunkA, fault, true},
		{"chat, llama.cpp's error", dialect.Chat, chunkA, "error: {\"code\":500,\"message\":\"x\"}\n\n", true},
		{"Anthropic, a stop reason", dialect.Anthropic, message, messageReason, false},
		{"Anthropic, message_stop", dialect.Anthropic, message + messageReason, messageStop, true},
		{"Anthropic, message_stop without a reason", dialect.Anthropic, message, messageStop, false},
		{"Anthropic, an error", dialect.Anthropic, message, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n", true},
		{"Responses, created", dialect.Responses, "", created, false},
		{"Responses, completed", dialect.Responses, created, completed, true},
		{"Responses, incomplete", dialect.Responses, created, strings.ReplaceAll(completed, "completed", "incomplete"), true},
		{"Responses, failed", dialect.Responses, created, strings.ReplaceAll(completed, "completed", "failed"), true},
		{"Responses, cancelled", dialect.Responses, created, cancelled, true},
		{"Gemini, a finish", dialect.Gemini, geminiText, geminiStop, false},
		{"Gemini, a translator's sentinel", dialect.Gemini, geminiText + geminiStop, done, true},
		{"Gemini, a sentinel without a finish", dialect.Gemini, geminiText, done, false},
		{"Gemini, an error", dialect.Gemini, geminiText, fault, true},
		{"Ollama, a line", dialect.Ollama, "", ollamaText, false},
		{"Ollama, done", dialect.Ollama, ollamaText, ollamaDone, true},
		{"Ollama, an error", dialect.Ollama, ollamaText, "{\"error\":\"x\"}\n", true},
		{"generic, done", dialect.Generic, "data: a\n\n", "event: done\ndata: {}\n\n", true},
		{"generic, a sentinel", dialect.Generic, "data: a\n\n", done, true},
		{"generic, what may be an error", dialect.Generic, "data: a\n\n", fault, false},
	} {
		a := New(streamOf(c.id))
		feed(a, c.first)
		if got := a.LastWord(a.Feed([]byte(c.then)).Marks); got != c.want {
			t.Errorf("%s: got %t", c.name, got)
		}
	}
	if a := New(Options{Kind: JSON}); a.LastWord(a.Feed([]byte("{}")).Marks) {
		t.Error("a document has a last word")
	}
}

// TestACompleteAnswerPassesAtItsVeryEnd cuts the last line end off, or what belongs to it. Lines and sentinels pass as they
// are; any other event without its blank line gets it, for readers would drop the event.
func TestACompleteAnswerPassesAtItsVeryEnd(t *testing.T) {
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	for name, c := range map[string]struct {
		id   dialect.ID
		text string
	}{
		"chat": {dialect.Chat, chunkA + finish + done}, "without sentinel": {dialect.Chat, chunkA + finish},
		"chat, CRLF": {dialect.Chat, crlf(chunkA + finish + done)}, "chat, CR": {dialect.Chat, strings.ReplaceAll(chunkA+finish+done, "\n", "\r")},
		"Gemini": {dialect.Gemini, geminiText + geminiStop}, "Gemini, CRLF": {dialect.Gemini, crlf(geminiText + geminiStop)},
		"Anthropic": {dialect.Anthropic, message + messageReason + messageStop}, "Responses": {dialect.Responses, created + completed},
		"Ollama": {dialect.Ollama, ollamaText + ollamaDone}, "generic": {dialect.Generic, "data: a\n\nevent: done\ndata: {}\n\n"},
	} {
		for text := c.text; ; text = text[:len(text)-1] {
			out, a, complete := pass(streamOf(c.id), text)
			want := text
			if c.id != dialect.Ollama && !strings.Contains(text, "[DONE]") && !strings.HasSuffix(text, "\n\r") { // a CR alone ends a blank line
				want = c.text
			}
			if out != want || !complete || !a.Over() {
				t.Errorf("%s: got %q of %q, complete %t", name, out, text, complete)
			}
			if last := text[len(text)-1]; last != '\n' && last != '\r' {
				break
			}
		}
	}
}

func TestWhatFollowsAWholeUnitStandsOnALineOfItsOwn(t *testing.T) {
	bare := strings.TrimRight(chunkA, "\n")
	for _, c := range []struct{ name, text, want string }{
		{"no line end", bare, chunkA}, {"half of it", bare + "\n", chunkA}, {"CR", bare + "\r", bare + "\r\n\n"},
	} {
		for _, clean := range []bool{true, false} {
			a := New(chat())
			out, _ := feed(a, c.text)
			rest, complete := a.Finish(clean)
			ending, honest := a.End(truncated)
			got := out + string(rest) + string(ending)
			if complete || !honest || !strings.HasPrefix(got, c.want+"event: done\n") {
				t.Errorf("%s, clean %t: got %q", c.name, clean, got)
			}
		}
	}
}

func TestAUnitThatWasCutIsCompletedIfItIsWhole(t *testing.T) {
	a := New(chat())
	out, _ := feed(a, chunkA+strings.TrimRight(finish, "\n"))
	if rest, complete := a.Finish(false); !complete || out+string(rest) != chunkA+finish {
		t.Errorf("got %q, complete %t", out+string(rest), complete)
	}
}

func TestHalfANumberIsNoEvent(t *testing.T) {
	for _, c := range []struct {
		id   dialect.ID
		text string
		want string
	}{
		{dialect.Generic, "data: 1\n\ndata: 12", "data: 1\n\n"}, {dialect.Generic, "data: 1\n\ndata: -12", "data: 1\n\n"},
		{dialect.Generic, "data: 1\n\ndata: 12\n", "data: 1\n\ndata: 12\n\n"}, {dialect.Generic, "data: 1\n\ndata: \"12\"", "data: 1\n\ndata: \"12\"\n\n"},
		{dialect.Ollama, ollamaText + "12", ollamaText},
	} {
		a := New(streamOf(c.id))
		out, _ := feed(a, c.text)
		if rest, _ := a.Finish(false); out+string(rest) != c.want {
			t.Errorf("of %q: got %q", c.text, out+string(rest))
		}
	}
}

// TestAnEventAboveTheBoundIsNotJudged: what it said, nobody knows, so only time or a cut ends the answer.
func TestAnEventAboveTheBoundIsNotJudged(t *testing.T) {
	big := strings.Repeat("A", 300)
	for name, c := range map[string]struct {
		id   dialect.ID
		text string
		want outcome.Outcome
	}{
		"Responses, completed":          {dialect.Responses, created + strings.Replace(completed, `"output":[]`, `"output":["`+big+`"]`, 1), outcome.Unknown},
		"Gemini, an image":              {dialect.Gemini, strings.ReplaceAll(strings.Replace(geminiStop, `""`, `"`+big+`"`, 1), "\n", "\r\n"), outcome.Unknown},
		"Gemini, then a finish":         {dialect.Gemini, strings.Replace(geminiText, `"a"`, `"`+big+`"`, 1) + geminiStop, outcome.OK},
		"Ollama, done":                  {dialect.Ollama, ollamaText + strings.Replace(ollamaDone, `"done"`, `"context":"`+big+`","done"`, 1), outcome.Unknown},
		"Ollama, done without line end": {dialect.Ollama, ollamaText + strings.TrimSpace(strings.Replace(ollamaDone, `"done"`, `"context":"`+big+`","done"`, 1)), outcome.Unknown},
		"chat, a finish in it":          {dialect.Chat, chunkA + strings.Replace(finish, "{}", `{"content":"`+big+`"}`, 1) + done, outcome.Unknown},
		"chat, content":                 {dialect.Chat, strings.Replace(chunkA, "日本語", big, 1) + finish + done, outcome.OK},
		"Anthropic, a reason":           {dialect.Anthropic, message + strings.Replace(messageReason, "{\"type", "{\"x\":\""+big+"\",\"type", 1) + messageStop, outcome.Unknown},
		"generic":                       {dialect.Generic, "data: " + big + "\n\n", outcome.Unknown},
		"another dialect behind it":     {dialect.Chat, "data: " + big + "\n\ndata: {\"delta\":\"x\"}\n\n", outcome.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			o := streamOf(c.id)
			o.MaxUnit = 260
			a := New(o)
			var marks dialect.Mark
			out, lie := "", false
			for p := range slices.Chunk([]byte(c.text), 50) {
				f := a.Feed(p)
				marks, lie, out = marks|f.Marks, lie || f.Lie, out+string(f.Out)
			}
			rest, complete := a.Finish(true)
			if out += string(rest); out != c.text || lie || !complete || a.State().Class != c.want || marks&dialect.Content == 0 || !a.blind {
				t.Errorf("got %q, lie %t, complete %t, marks %d, state %+v", out, lie, complete, marks, a.State())
			}
		})
	}
	o := streamOf(dialect.Ollama)
	o.MaxUnit, o.Keep = 200, 1<<10
	cut := New(o)
	long := strings.Replace(ollamaText, `"a"`, `"`+big+`"`, 1)
	feed(cut, ollamaText, long[:250], long[250:])
	if cut.Over() {
		t.Error("over, of which nobody knows")
	}
	if _, complete := cut.Finish(false); complete {
		t.Error("a cut passes for an end")
	}
	if ending, honest := cut.End(truncated); !honest || !strings.Contains(string(ending), `"done_reason":"length"`) {
		t.Errorf("ending %q, honest %t", ending, honest)
	}
	if _, kept := cut.Kept(); kept {
		t.Error("kept")
	}
}

func TestNoBytesAtAllAreAnEmptyAnswer(t *testing.T) {
	for _, id := range dialect.IDs() {
		for _, o := range []Options{{Kind: Stream, Dialect: id, Status: 200}, {Kind: JSON, Dialect: id, Status: 200}, {Kind: Stream, Dialect: id, Ambiguous: true, Status: 200}} {
			a := New(labelled(o))
			a.Feed(nil)
			rest, complete := a.Finish(true)
			if len(rest) > 0 || !complete || a.State().Class != outcome.Empty || !a.State().Complete {
				t.Errorf("%s %d: rest %q, complete %t, state %+v", id, o.Kind, rest, complete, a.State())
			}
		}
		a := New(streamOf(id))
		if _, complete := a.Finish(false); complete {
			t.Errorf("%s: a cut before the first byte is complete", id)
		}
	}
}

// TestPingsAreNoLife: they neither tell the dialect nor that the model is alive.
func TestPingsAreNoLife(t *testing.T) {
	for _, ping := range []string{": x\n\n", "event: ping\ndata: {}\n\n", "event: ping\ndata: {\"type\":\"ping\"}\n\n", "data: {\"type\": \"ping\"}\n\n",
		"event: keepalive\ndata: 1\n\n", "data: {\"type\":\"heartbeat\"}\n\n", "data:\n\n", "data: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n"} {
		for _, id := range dialect.IDs() {
			if id.NDJSON() {
				continue
			}
			a := New(streamOf(id))
			if m := a.Feed([]byte(ping)).Marks; m != 0 {
				t.Errorf("%s: %q is %d", id, ping, m)
			}
			if a.Dialect() != id {
				t.Errorf("%q makes %s %s", ping, id, a.Dialect())
			}
		}
		o := streamOf(dialect.Generic)
		o.Guess = true
		a := New(o)
		feed(a, ping, chunkA)
		if a.Dialect() != dialect.Chat {
			t.Errorf("behind %q a chunk of chat is %s", ping, a.Dialect())
		}
		a = New(chat())
		feed(a, ping, "data: {\"delta\":\"partial \"}\n\n")
		if a.Dialect() != dialect.Generic {
			t.Errorf("behind %q what is no chunk is %s", ping, a.Dialect())
		}
	}
}

func TestWordsBesideALieGoOn(t *testing.T) {
	words := strings.Replace(abort, "{}", `{"content":"last words"}`, 1)
	want := strings.Replace(words, `"abort"`, `null`, 1)
	rapid.Check(t, func(t *rapid.T) {
		a := New(chat())
		out, lie := feed(a, pieces(t, chunkA+words+done)...)
		if out != chunkA+want || !lie {
			t.Fatalf("out %q, lie %t", out, lie)
		}
	})
	a := New(chat())
	out, _ := feed(a, strings.TrimRight(words, "\n"))
	rest, complete := a.Finish(true)
	if got := out + string(rest); got != want || complete {
		t.Errorf("without its end: %q, complete %t", got, complete)
	}
}

func TestEndingsOfGeminiHaveItsLineEnds(t *testing.T) {
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	text, end := crlf(geminiText+geminiText), crlf(geminiEnd)
	for _, c := range []struct{ name, text, want string }{
		{"LF", geminiText, geminiText + geminiEnd}, {"CRLF", text, text + end}, {"the last LF is missing", text[:len(text)-1], text + end},
		{"no blank line", text[:len(text)-2], text + end}, {"a CR", text[:len(text)-3], text + end}, {"no line end", text[:len(text)-4], text + end},
		{"half an event", text + `data: {"can`, text + end}, {"comments", ": x\r\n\r\n" + text, ": x\r\n\r\n" + text + end},
	} {
		a := New(streamOf(dialect.Gemini))
		out, _ := feed(a, c.text)
		rest, _ := a.Finish(true)
		ending, _ := a.End(truncated)
		if got := out + string(rest) + string(ending); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	o := labelled(streamOf(dialect.Gemini))
	for _, text := range []string{crlf(geminiText + geminiStop), strings.TrimSpace(crlf(geminiText + geminiStop))} {
		got, _, _ := pass(o, text)
		if strings.Count(got, "\n") != strings.Count(got, "\r\n") || strings.Count(got, "\r\n\r\n") != 3 {
			t.Errorf("a label: got %q", got)
		}
	}
	o.Stream.Terminal = dialect.Error
	a := New(o)
	feed(a, text)
	if ending, _ := a.End(truncated); !strings.HasSuffix(string(ending), "}\r\n\r\n") {
		t.Errorf("an error: got %q", ending)
	}
}

// readEvents reads a stream by the rule of google.golang.org/genai: up to the first two LFs in all that it has, else up to
// the first two CRLFs, else to the end.
func readEvents(body string) (events []string) {
	for len(body) > 0 {
		event, rest := body, ""
		if i := strings.Index(body, "\n\n"); i >= 0 {
			event, rest = body[:i], body[i+2:]
		} else if i := strings.Index(body, "\r\n\r\n"); i >= 0 {
			event, rest = body[:i], body[i+4:]
		}
		if event = strings.TrimSuffix(event, "\r"); event != "" {
			events = append(events, event)
		}
		body = rest
	}
	return events
}

// TestGeminisReaderFindsEveryEvent: whatever line ends the upstream has, wherever it stops, and however the stream is ended.
func TestGeminisReaderFindsEveryEvent(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		text := strings.ReplaceAll(geminiText+geminiText+geminiStop, "\n", end)
		for n := len(text); n > len(text)/3; n-- {
			for _, o := range []Options{streamOf(dialect.Gemini), labelled(streamOf(dialect.Gemini))} {
				for _, clean := range []bool{true, false} {
					a := New(o)
					out, _ := feed(a, text[:n])
					rest, complete := a.Finish(clean)
					out += string(rest)
					if !complete {
						ending, _ := a.End(truncated)
						out += string(ending)
					}
					checkGemini(t, out)
				}
			}
		}
		a := New(labelled(streamOf(dialect.Gemini)))
		out, _ := feed(a, text)
		checkGemini(t, out+string(a.LabelEnd()))
		checkGemini(t, text+dialect.Gemini.Filler())
	}
}

func checkGemini(t *testing.T, out string) {
	t.Helper()
	events := readEvents(out)
	if want := strings.Count(out, "data: "); len(events) != want {
		t.Errorf("%d events of %d in %q", len(events), want, out)
	}
	for _, e := range events {
		if data, ok := strings.CutPrefix(e, "data: "); !ok || !gjson.Valid(data) {
			t.Errorf("no event is %q, in %q", e, out)
		}
	}
}
