package dialect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

func observe(s Stream, data string) Mark {
	return s.Observe(frame.Fields{Data: []byte(data), HasData: true}, []byte(data))
}

// TestAnAnswerThatCouldNotBeReadIsOverOnlyAtItsEnd: behind a unit that nobody could read a clean end is believed, time and
// cuts are not.
func TestAnAnswerThatCouldNotBeReadIsOverOnlyAtItsEnd(t *testing.T) {
	for _, id := range IDs() {
		s := New(id, Options{})
		observe(s, strings.TrimSpace(contentUnit(id)))
		s.Blind()
		if got := s.State(); !got.Complete || !got.Provisional || !got.Content || got.Class != outcome.Unknown {
			t.Errorf("%s: %+v", id, got)
		}
		if got := s.AppendEnding(nil, atDeadline); len(got) == 0 {
			t.Errorf("%s: no ending", id)
		}
		if id.NDJSON() {
			continue
		}
		if m := observe(s, "[DONE]"); m&Withhold != 0 {
			t.Errorf("%s: a sentinel behind it is %s", id, m)
		}
	}
}

func TestABlindUnitIsNoReasonToBelieveAnAbort(t *testing.T) {
	s := New(Chat, Options{})
	s.Blind()
	if m := observe(s, `{"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`); m&Withhold == 0 || s.State().Complete {
		t.Errorf("an abort is %s, state %+v", m, s.State())
	}
	if m := observe(s, "[DONE]"); m&Withhold == 0 {
		t.Errorf("its sentinel is %s", m)
	}
}

// TestOfMoreChoicesThanAreFollowedOnlyTheSentinelIsProof: so it is for choices, and no ending pretends to close the rest.
func TestOfMoreChoicesThanAreFollowedOnlyTheSentinelIsProof(t *testing.T) {
	chunk := func(i int, text, finish string) string {
		return fmt.Sprintf(`{"id":"c","object":"text_completion","choices":[{"index":%d,"text":%q,"finish_reason":%s}]}`, i, text, finish)
	}
	for _, n := range []int{maxOpen, maxOpen + 1} {
		s := New(Completions, Options{})
		for i := range n {
			observe(s, chunk(i, "x", "null"))
		}
		if ending := string(s.AppendEnding(nil, atDeadline)); strings.HasPrefix(ending, "data: {\"error\":{") != (n > maxOpen) {
			t.Errorf("%d choices are ended by %s", n, ending)
		}
		for i := range n {
			observe(s, chunk(i, "", `"stop"`))
		}
		if m := observe(s, chunk(n-1, "", "null")); s.State().Complete != (n <= maxOpen) {
			t.Errorf("%d choices: complete %t, %s", n, s.State().Complete, m)
		}
		if m := observe(s, "[DONE]"); m&Withhold != 0 || m&Final == 0 || !s.State().settled() {
			t.Errorf("%d choices: the sentinel is %s, state %+v", n, m, s.State())
		}
	}
	s := New(Completions, Options{})
	for i := range maxOpen + 1 {
		observe(s, chunk(i, "x", "null"))
	}
	if m := observe(s, "[DONE]"); m&Withhold == 0 {
		t.Errorf("a sentinel before any has finished is %s", m)
	}
	if m := observe(s, chunk(maxOpen, "y", "null")); m&Content == 0 {
		t.Errorf("the words of a choice beyond the bound are %s", m)
	}
}

func TestPartsBeyondTheBoundAreNotClosedByAnEnding(t *testing.T) {
	a := New(Anthropic, Options{})
	observe(a, `{"type":"message_start","message":{}}`)
	r := New(Responses, Options{})
	observe(r, `{"type":"response.created","response":{"id":"r"}}`)
	g := New(Gemini, Options{})
	for i := range maxOpen + 1 {
		observe(a, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":"x"}}`, i))
		observe(r, fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"message","id":"m"}}`, i))
		observe(g, fmt.Sprintf(`{"candidates":[{"index":%d,"content":{"parts":[{"text":"a"}]}}]}`, i))
		observe(g, fmt.Sprintf(`{"candidates":[{"index":%d,"finishReason":"STOP"}]}`, i))
	}
	for _, s := range []Stream{a, r} {
		if ending := string(s.AppendEnding(nil, atDeadline)); !strings.HasPrefix(ending, "event: error\n") {
			t.Errorf("%s: %s", s.ID(), ending)
		}
	}
	if st := g.State(); !st.Complete || !st.Provisional {
		t.Errorf("of more candidates than are followed all have finished: %+v", st)
	}
}

func TestAResponseTooLargeToKeepKeepsItsIdentity(t *testing.T) {
	s := New(Responses, Options{})
	observe(s, `{"type":"response.created","sequence_number":0,"response":{"instructions":"`+strings.Repeat("x", maxResponse)+`","id":"resp_1","object":"response","model":"m","created_at":7}}`)
	ending := string(s.AppendEnding(nil, atDeadline))
	if want := `"response":{"id":"resp_1","created_at":7,"model":"m","object":"response","status":"incomplete"`; !strings.Contains(ending, want) || len(ending) > 1<<10 {
		t.Errorf("got %.400s", ending)
	}
}

func TestOnlyPathsOfMistralAreIts(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/fim/completions": true, "/mistral/v1/fim/completions/?x=1": true, "/v1/chat/completions": false, "/v1/completions": false, "/x?y=/fim/completions": false,
	} {
		if got := IsMistral(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

func TestAMistralChunkIsToldByItsIdentifier(t *testing.T) {
	for ident, want := range map[string]bool{
		`"f798ebd5c41a45d88bb079635121cade"`: true, `"F798ebd5c41a45d88bb079635121cade"`: false, `"f798ebd5c41a45d88bb079635121cad"`: false, `"chatcmpl-1"`: false, ``: false,
	} {
		if got := isMistral(text(ident), false); got != want {
			t.Errorf("%s: %t", ident, got)
		}
	}
}
