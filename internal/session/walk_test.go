package session

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// ledger checks what must hold of any order of events.
type ledger struct {
	t                                              *rapid.T
	offered, finished, replied, continued, granted int
	released, extended, uploaded, fallen           int
	headers, ended                                 bool // the answer's headers, its end have gone on
}

func (l *ledger) note(e Effect) {
	switch e.(type) {
	case Offer:
		l.offered++
	case OfferBody:
		l.uploaded++
	case Fallback:
		l.fallen++
	case Finish:
		l.finished++
	case Reply:
		l.replied++
	case Continue:
		l.continued++
	case ReleaseSlot:
		l.released++
	case ExtendTimeout:
		l.extended++
	case ContinueAnswer:
		if l.replied > 0 {
			l.t.Fatalf("an answer goes on after a reply of ours")
		}
		l.headers = true
	case SendBody, Reset:
		if !l.headers || l.ended || l.replied > 0 {
			l.t.Fatalf("%T: headers gone %t, ended %t, replied %d", e, l.headers, l.ended, l.replied)
		}
		if b, ok := e.(SendBody); ok && !b.End {
			break
		}
		l.ended = true
	}
	switch {
	case l.offered > 1 || l.finished > 1 || l.replied > 1 || l.continued > 1 || l.released > 1 || l.extended > 1 || l.uploaded > 1 || l.fallen > 1:
		l.t.Fatalf("done twice: %+v", *l)
	case l.finished > 0 && l.offered == 0:
		l.t.Fatalf("finished without having begun")
	}
}

// TestAnyOrderOfEventsFinishesOnce walks at random through every event, most of them out of place.
func TestAnyOrderOfEventsFinishesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now, l := &Session{}, epoch, &ledger{t: t}
		asked := false
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "gap")) * time.Millisecond)
			ev := drawEvent(t, now)
			if _, grant := ev.(Admitted); grant {
				if !asked || l.granted > 0 {
					continue // the engine settles a request once, and only one that was offered
				}
				l.granted++
			}
			for _, e := range s.Step(nil, now, ev) {
				l.note(e)
			}
			asked = l.offered > 0
			if _, closed := ev.(Closed); closed && !s.Ended() {
				t.Fatalf("not ended after Closed: %s", s.state)
			}
		}
		for _, e := range s.Step(nil, now, Closed{}) {
			l.note(e)
		}
		if l.finished != l.offered {
			t.Fatalf("offered %d, finished %d", l.offered, l.finished)
		}
		if _, ok := s.NextWake(); ok {
			t.Fatalf("an ended session wants to be woken")
		}
		if l.granted == 1 && l.continued == 0 && l.released == 0 {
			t.Fatalf("a slot was granted, not used and not given back")
		}
	})
}

func drawEvent(t *rapid.T, now time.Time) Event {
	d := deadline.Bounds{}.Resolve(epoch, deadline.Limits{Default: 2500 * time.Millisecond, Max: 10 * time.Second})
	return rapid.OneOf(
		rapid.Just[Event](NeedBody{Route: "r", Deadline: d, ExpiredStatus: 503}),
		rapid.Just[Event](Answered{Route: "r", Tier: "canned", Outcome: outcome.DegradedOK, Reply: outcome.Reply{Status: 200, Source: outcome.SourceTemplate}}),
		rapid.Just[Event](Fallen{}), rapid.Just[Event](Fallen{&Answered{Tier: "canned", Outcome: outcome.DegradedOK, Reply: outcome.Reply{Status: 200}}}),
		rapid.Just[Event](Admitted{Route: "r", Tier: "full", Deadline: d, Fallback: true, ReplaceEmpty: true, Keep: 100, Watch: &Watch{Hold: true, Sealed: true, Linger: time.Second}}),
		rapid.Just[Event](RequestHeaders{}), rapid.Just[Event](Unmatched{}), rapid.Just[Event](Parked{Route: "r", GiveUp: d.KillAt()}),
		rapid.Just[Event](Admitted{Route: "r", Tier: "full", Deadline: d}),
		rapid.Just[Event](Admitted{Route: "r", Tier: "full", Deadline: d, Watch: &Watch{Hold: true, Idle: time.Second, Linger: time.Second}}),
		rapid.Just[Event](Admitted{Route: "r", Tier: "full", Deadline: d, Watch: &Watch{Sealed: true, Linger: time.Second}}),
		rapid.Just[Event](ResponseHeaders{Status: 200, ContentType: "text/event-stream"}),
		rapid.Just[Event](ResponseHeaders{Status: 200, ContentType: "application/json"}),
		rapid.Just[Event](Body{Phase: ResponseBody, Data: []byte("data: x\n\ndata: [DONE]\n\nda")}),
		rapid.Just[Event](Body{Phase: ResponseBody, Data: []byte(`{"a":`), End: true}), rapid.Just[Event](ResponseTrailers{Cut: true}),
		rapid.Just[Event](Refused{Route: "r", Reason: outcome.ShedQueueFull, Status: 503, RetryAfter: time.Second}),
		rapid.Just[Event](ResponseHeaders{Status: 200}), rapid.Just[Event](ResponseHeaders{Status: 503, FromEnvoy: true, EndOfBody: true}),
		rapid.Just[Event](ResponseTrailers{}), rapid.Just[Event](Body{Phase: RequestBody}), rapid.Just[Event](Wake{}), rapid.Just[Event](Closed{}),
	).Draw(t, "event")
}

// TestEveryEventHasAPlaceInEveryState keeps the sum closed: a new kind of event must be handled and added here.
func TestEveryEventHasAPlaceInEveryState(t *testing.T) {
	events := []Event{RequestHeaders{}, Unmatched{}, NeedBody{}, Answered{}, Fallen{}, Parked{}, Admitted{}, Refused{}, ResponseHeaders{}, ResponseTrailers{}, Body{}, UpstreamCut{}, Wake{}, Closed{}}
	for st := start; st <= ended; st++ {
		for _, ev := range events {
			s := &Session{state: st}
			for _, e := range s.Step(nil, epoch, ev) {
				if p, ok := e.(ProtocolError); ok && p.What == "unknown event while "+st.String() {
					t.Errorf("%T is unknown while %s", ev, st)
				}
			}
		}
	}
}

func BenchmarkStep(b *testing.B) {
	d := deadline.Bounds{}.Resolve(epoch, deadline.Limits{Default: 2500 * time.Millisecond, Max: 10 * time.Second})
	events := []Event{RequestHeaders{}, Admitted{Route: "r", Tier: "full", Deadline: d}, ResponseHeaders{Status: 200, ContentType: "application/json"}, Closed{}}
	dst := make([]Effect, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		s := Session{}
		for _, ev := range events {
			dst = s.Step(dst[:0], epoch, ev)
		}
	}
}
