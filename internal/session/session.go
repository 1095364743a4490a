package session

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// timeoutMargin is added to the wait announced to Envoy, so that our answer arrives before its timeout speaks.
const timeoutMargin = 250 * time.Millisecond

type state uint8

const (
	start state = iota
	asking
	parked
	admitted
	answered
	ended
)

var stateNames = [...]string{"start", "asking", "parked", "admitted", "answered", "ended"}

func (s state) String() string { return stateNames[s] }

// Session is one request. The zero value is ready for RequestHeaders.
type Session struct {
	state    state
	extended bool
	held     bool             // a slot is held
	passing  bool             // ended, and what follows goes on untouched
	reason   outcome.Degraded // why a lower tier runs it
	deadline deadline.Deadline
	wake     time.Time // zero: none
	fin      Finish    // filled as facts arrive
	verdict  outcome.Outcome
}

// Passing is a session that lets everything go on untouched and accounts for nothing: for what follows after the
// session it replaces has failed.
func Passing() Session { return Session{state: ended, passing: true, held: true} }

// NextWake is when the session wants a Wake event, or false.
func (s *Session) NextWake() (time.Time, bool) { return s.wake, !s.wake.IsZero() }

// Ended says whether the request has been accounted for.
func (s *Session) Ended() bool { return s.state == ended }

// Step takes one event and appends what is to be done to dst.
func (s *Session) Step(dst []Effect, now time.Time, ev Event) []Effect {
	if s.state == ended {
		return s.afterEnd(dst, ev)
	}
	switch ev := ev.(type) {
	case RequestHeaders:
		return s.onRequest(dst)
	case Unmatched, Parked, Admitted, Refused:
		return s.onVerdict(dst, now, ev)
	case ResponseHeaders:
		return s.onAnswer(dst, now, ev)
	case ResponseTrailers:
		if s.state != answered {
			return s.impossible(append(dst, ContinueTrailers{}), "response trailers")
		}
		return s.finish(append(dst, ContinueTrailers{}), s.verdict)
	case Body:
		return append(dst, ContinueBody(ev))
	case Wake:
		return s.onWake(dst, now)
	case Closed:
		return s.onClosed(dst)
	}
	return s.impossible(dst, "unknown event")
}

func (s *Session) onRequest(dst []Effect) []Effect {
	if s.state != start {
		return s.impossible(dst, "request headers")
	}
	s.state = asking
	return append(dst, Offer{})
}

func (s *Session) onVerdict(dst []Effect, now time.Time, ev Event) []Effect {
	if _, late := ev.(Parked); late && s.state == admitted {
		return dst // the grant overtook the news that it would be waited for
	}
	if s.state != asking && s.state != parked {
		return s.impossible(dst, "verdict")
	}
	switch ev := ev.(type) {
	case Unmatched:
		s.passing = true
		return s.finish(append(dst, PassThrough{}), outcome.Unmatched)
	case Parked:
		return s.onParked(dst, now, ev)
	case Admitted:
		return s.onAdmitted(dst, now, ev)
	case Refused:
		return s.onRefused(dst, ev)
	}
	return dst
}

func (s *Session) onParked(dst []Effect, now time.Time, ev Parked) []Effect {
	s.state, s.fin.Route = parked, ev.Route
	if s.extended {
		return dst
	}
	s.extended = true
	return append(dst, ExtendTimeout{max(0, ev.GiveUp.Sub(now)) + timeoutMargin})
}

func (s *Session) onAdmitted(dst []Effect, now time.Time, ev Admitted) []Effect {
	s.held = true
	if ev.Deadline.TooLate(now) { // the slot came when there was no time left to use it: nothing has gone upstream
		refused := Refused{Route: ev.Route, Reason: outcome.ShedDeadlineExpired, Tier: ev.Tier, Status: ev.ExpiredStatus, RetryAfter: time.Second}
		return s.onRefused(append(dst, ReleaseSlot{}), refused)
	}
	s.state, s.deadline = admitted, ev.Deadline
	s.fin.Route, s.fin.Tier, s.reason, s.fin.AdmittedAt = ev.Route, ev.Tier, ev.Reason, now
	s.wake = ev.Deadline.KillAt()
	return append(dst, Continue{
		Tier:            ev.Tier,
		RemainingMillis: ev.Deadline.RemainingMillis(now),
		CoversWhole:     ev.Deadline.CoversWhole(),
	})
}

func (s *Session) onRefused(dst []Effect, ev Refused) []Effect {
	r := outcome.ShedReply(ev.Reason, ev.Status, ev.RetryAfter)
	s.fin.Route, s.fin.Shed, s.fin.ShedTier = ev.Route, ev.Reason, ev.Tier
	s.fin.Source, s.fin.Status = r.Source, r.Status
	return s.finish(append(dst, Reply{r}), outcome.ShedOutcome)
}

func (s *Session) onAnswer(dst []Effect, now time.Time, ev ResponseHeaders) []Effect {
	if s.state == start { // Envoy answers a request it could not read: there is nothing to decide
		s.state, s.passing = ended, true
		return append(dst, ContinueAnswer{})
	}
	if s.state != admitted {
		return s.impossible(append(dst, ContinueAnswer{}), "response headers")
	}
	s.state = answered
	s.fin.Status, s.fin.HeadersAt, s.fin.Source = ev.Status, now, outcome.SourceUpstream
	if ev.FromEnvoy {
		s.fin.Source = outcome.SourceEnvoy
	}
	s.verdict = outcome.ByStatus(ev.Status, ev.FromEnvoy, ev.Details)
	if s.verdict == outcome.OK && (s.reason != outcome.DegradedNone || ev.Degraded) {
		s.verdict, s.fin.Degraded = outcome.DegradedOK, s.reason // an error of a lower tier is no degraded answer
	}
	s.wake = s.deadline.EndAt(isStream(ev.ContentType))
	dst = append(dst, s.label(now, ev))
	if ev.EndOfBody {
		return s.finish(dst, s.verdict)
	}
	return dst
}

// onWake acts on a deadline. Before headers it answers 504. After headers the status is out and the body is not
// watched in this version: the miss is counted when the answer ends.
func (s *Session) onWake(dst []Effect, now time.Time) []Effect {
	if s.wake.IsZero() || now.Before(s.wake) {
		return dst
	}
	s.wake = time.Time{}
	switch s.state {
	case admitted:
		r := outcome.DeadlineReply(outcome.DegradedDeadline)
		s.fin.Source, s.fin.Status = r.Source, r.Status
		return s.finish(append(dst, Reply{r}), outcome.Deadline)
	case answered:
		s.verdict = outcome.First(s.verdict, outcome.Deadline)
	}
	return dst
}

// onClosed ends on closure. Before the answer it can only be the caller; Envoy would have said something. After
// headers a clean end, an abort and a cut look alike (Envoy closes the side stream for each), so the status decides.
func (s *Session) onClosed(dst []Effect) []Effect {
	switch s.state {
	case start:
		s.state = ended
		return dst
	case asking, parked:
		return s.finish(append(dst, Abandon{}), outcome.ClientAborted)
	case admitted:
		return s.finish(dst, outcome.ClientAborted)
	}
	return s.finish(dst, s.verdict)
}

// afterEnd answers what still arrives, so that nothing waits for us, and gives back a late grant.
func (s *Session) afterEnd(dst []Effect, ev Event) []Effect {
	if _, ok := ev.(Admitted); ok && !s.held {
		s.held = true
		return append(dst, ReleaseSlot{})
	}
	if !s.passing {
		return dst
	}
	switch ev := ev.(type) {
	case RequestHeaders:
		return append(dst, PassThrough{})
	case ResponseHeaders:
		return append(dst, ContinueAnswer{})
	case ResponseTrailers:
		return append(dst, ContinueTrailers{})
	case Body:
		return append(dst, ContinueBody(ev))
	}
	return dst
}

func (s *Session) finish(dst []Effect, o outcome.Outcome) []Effect {
	s.state, s.wake = ended, time.Time{}
	s.fin.Outcome = o
	return append(dst, s.fin)
}

func (s *Session) impossible(dst []Effect, what string) []Effect {
	return append(dst, ProtocolError{what + " while " + s.state.String()})
}
