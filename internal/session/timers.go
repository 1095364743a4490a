package session

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// timers are the instants at which a request is ended. Zero: never.
type timers struct {
	whole   time.Time // the whole answer, by the budget or stream.max
	first   time.Time // the first content, by the budget
	token   time.Time // the first content, by stream.first_token
	silence time.Time // the next data, by stream.idle
	linger  time.Time // the end of a complete stream that stays open

	idle, lingerFor time.Duration
}

// admit starts the timers of a request that goes upstream.
func (t *timers) admit(now time.Time, d deadline.Deadline, w *Watch) {
	t.first = d.KillAt()
	if w != nil && w.FirstToken > 0 {
		t.token = now.Add(w.FirstToken)
	}
}

// answer moves them on at the answer's headers. Of a stream that is watched the first content is still waited for; of
// one that is not, the headers stand for it.
func (t *timers) answer(now time.Time, d deadline.Deadline, stream bool, w *Watch) {
	t.whole = d.EndAt(stream)
	if !stream || w == nil {
		t.first, t.token = time.Time{}, time.Time{}
		return
	}
	t.idle, t.lingerFor = w.Idle, w.Linger
	if w.Max > 0 {
		t.whole = earliest(t.whole, now.Add(w.Max))
	}
	t.data(now)
}

// data notes that the stream is alive.
func (t *timers) data(now time.Time) {
	if t.idle > 0 {
		t.silence = now.Add(t.idle)
	}
}

// content notes that the first token has come.
func (t *timers) content() { t.first, t.token = time.Time{}, time.Time{} }

// last notes that the upstream has said its last word: from now on the stream may stay open for linger only. Words after
// it do not buy more.
func (t *timers) last(now time.Time) {
	if t.lingerFor > 0 && t.linger.IsZero() {
		t.linger = now.Add(t.lingerFor)
	}
}

// more notes that the last word was none.
func (t *timers) more() { t.linger = time.Time{} }

// next is the earliest of all, zero when there is none.
func (t *timers) next() time.Time {
	return earliest(earliest(t.whole, t.first), earliest(t.token, earliest(t.silence, t.linger)))
}

// due says which timer has passed, as the reason to end; none for linger, which ends what is complete.
func (t *timers) due(now time.Time) (why outcome.Degraded, linger, due bool) {
	passed := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	switch {
	case passed(t.linger):
		return outcome.DegradedNone, true, true
	case passed(t.token):
		return outcome.DegradedSlowFirstToken, false, true
	case passed(t.whole), passed(t.first):
		return outcome.DegradedDeadline, false, true
	case passed(t.silence):
		return outcome.DegradedStalled, false, true
	}
	return outcome.DegradedNone, false, false
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// NextWake is when the session wants a Wake event, or false.
func (s *Session) NextWake() (time.Time, bool) {
	at := s.timers.next()
	return at, !at.IsZero()
}
