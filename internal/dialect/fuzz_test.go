package dialect

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// checkEnding holds an ending of ours to what clients can read behind what was forwarded.
func checkEnding(t *testing.T, before Stream, o Options, out []byte, why outcome.Degraded) {
	t.Helper()
	id, was := before.ID(), before.State()
	ending := before.AppendEnding(nil, Ending{Tier: "small \"quoted\"\n", Reason: why})
	if len(ending) == 0 {
		if !was.settled() && !was.Error && !was.Foreign {
			t.Errorf("%s: an unfinished answer gets no ending: %+v", id, was)
		}
		return
	}
	if was.settled() {
		t.Errorf("%s: a complete answer gets an ending: %s", id, ending)
	}
	checkLegal(t, id, ending)
	if bare := o.Terminal == Bare && id != Generic && id != Ollama; bare || was.Error {
		return
	}
	after, _ := play(id, o, append(bytes.Clone(out), ending...))
	s := after.State()
	if !s.Complete && !s.Error {
		t.Errorf("%s: behind %q the ending is none: %q", id, out, ending)
	}
	if s.Complete && id != Generic && reason([]byte(s.Finish)) == finishDone {
		t.Errorf("%s: behind %q the ending lies: finish %q in %q", id, out, s.Finish, ending)
	}
	if s.Class == outcome.OK {
		t.Errorf("%s: behind %q the answer passes as whole: %q", id, out, ending)
	}
	if again := after.AppendEnding(nil, atDeadline); len(again) > 0 && !s.Provisional {
		t.Errorf("%s: behind the ending %q another fits: %q", id, ending, again)
	}
}

// checkLegal demands of bytes of ours that they are whole units with JSON or the sentinel in them, and of the contract's
// keys that they stand in one frame, or in Anthropic's two.
func checkLegal(t *testing.T, id ID, ending []byte) {
	t.Helper()
	split := frame.Splitter{}
	if id.NDJSON() {
		split.Kind = frame.NDJSON
	}
	done := 0
	split.Feed(ending, func(e frame.Event) bool {
		data := e.Block
		if !id.NDJSON() {
			f, _ := e.Parse(false, nil)
			if f.Bare != nil || f.Error != nil || !f.HasData || bytes.HasPrefix(e.Block, []byte("id:")) || bytes.HasPrefix(e.Block, []byte("retry:")) {
				t.Errorf("%s: the ending has a frame no client reads: %q", id, e.Block)
			}
			if string(f.Name) == "done" {
				done++
			}
			data = f.Data
		}
		if string(data) != "[DONE]" && !json.Valid(data) {
			t.Errorf("%s: the ending has no JSON: %q", id, e.Block)
		}
		return true
	})
	if !split.AtBoundary() || done > 1 {
		t.Errorf("%s: at boundary %t, %d done events in %q", id, split.AtBoundary(), done, ending)
	}
}

// FuzzAnyCutOfATranscriptEndsHonestly cuts the transcripts between two units.
func FuzzAnyCutOfATranscriptEndsHonestly(f *testing.F) {
	all := transcripts(f)
	for i := range all {
		f.Add(uint16(i), uint16(1), uint8(0), uint8(2))
		f.Add(uint16(i), uint16(2), uint8(i), uint8(i))
	}
	reasons := outcome.AllDegraded()
	f.Fuzz(func(t *testing.T, which, cut uint16, mode, why uint8) {
		tr := all[int(which)%len(all)]
		o := tr.opts
		o.Terminal = Mode(mode % 3)
		_, units := play(tr.id, o, []byte(tr.stream))
		units = units[:int(cut)%(len(units)+1)]
		var stream []byte
		for _, u := range units {
			stream = append(stream, u.block...)
		}
		s, units := play(tr.id, o, stream)
		checkEnding(t, s, o, forwarded(units), reasons[int(why)%len(reasons)])
	})
}

// TestEveryCutOfEveryTranscriptEndsHonestly is the whole of what the fuzz target samples, in every mode.
func TestEveryCutOfEveryTranscriptEndsHonestly(t *testing.T) {
	for _, tr := range transcripts(t) {
		for _, mode := range []Mode{Polyglot, Bare, Error} {
			o := tr.opts
			o.Terminal = mode
			_, units := play(tr.id, o, []byte(tr.stream))
			var stream []byte
			for i := 0; ; i++ {
				s, seen := play(tr.id, o, stream)
				checkEnding(t, s, o, forwarded(seen), outcome.DegradedUpstreamTruncated)
				if i == len(units) {
					break
				}
				stream = append(stream, units[i].block...)
			}
			if t.Failed() {
				t.Fatalf("in %s/%s", tr.id, tr.name)
			}
		}
	}
}

// FuzzAnyBytesAreSafe feeds anything to every dialect: nothing breaks, marks and state agree, memory stays bounded, and
// what we append is legal.
func FuzzAnyBytesAreSafe(f *testing.F) {
	for _, tr := range transcripts(f) {
		f.Add(uint8(tr.id), tr.opts.EvidenceEOF, []byte(tr.stream))
	}
	f.Fuzz(func(t *testing.T, which uint8, eof bool, stream []byte) {
		id := ID(which) % numIDs
		s := New(id, Options{EvidenceEOF: eof})
		split := frame.Splitter{}
		if id.NDJSON() {
			split.Kind = frame.NDJSON
		}
		var was State
		split.Feed(stream, func(e frame.Event) bool {
			fields, _ := e.Parse(false, nil)
			m := s.Observe(fields, e.Block)
			now := s.State()
			checkStep(t, s.ID(), m, was, now)
			was = now
			return !t.Failed()
		})
		checkLegal(t, s.ID(), s.AppendEnding(nil, atDeadline))
		checkLegal(t, s.ID(), s.AppendLabel(nil, nil, theLabel))
		JudgeJSON(id, 200, stream)
		JudgeJSON(id, 429, stream)
		ByEvent(frame.Fields{Data: stream, HasData: true})
	})
}

func checkStep(t *testing.T, id ID, m Mark, was, now State) {
	t.Helper()
	switch {
	case m&(Content|Finished|Withhold|Sentinel|Foreign) != 0 && m&Data == 0:
		t.Errorf("%s: %s without data", id, m)
	case m&Content != 0 && !now.Content:
		t.Errorf("%s: %s, but the state has no content", id, m)
	case m&Finished != 0 && !now.Complete:
		t.Errorf("%s: %s, but the state is not complete", id, m)
	case m&Failed != 0 && (!now.Error || now.Class == outcome.Unknown || now.Class == outcome.OK):
		t.Errorf("%s: %s, but the state is %+v", id, m, now)
	case was.Content && !now.Content:
		t.Errorf("%s: content was taken back", id)
	case was.Error && !now.Error && id != Generic:
		t.Errorf("%s: an error was taken back", id)
	case was.settled() && !now.settled() && !now.Error && id != Chat && id != Completions && id != Gemini:
		t.Errorf("%s: completeness was taken back", id)
	case now.Complete && now.Class == outcome.Unknown && !now.Foreign:
		t.Errorf("%s: complete without a class", id)
	case len(now.Finish) > maxReason:
		t.Errorf("%s: keeps a reason of %d bytes", id, len(now.Finish))
	}
}
