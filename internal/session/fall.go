package session

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// failure is an answer that failed before anything of it had gone on, while it is asked what stands in for it.
type failure struct {
	why     outcome.Degraded
	outcome outcome.Outcome
	reply   *outcome.Reply // what the caller gets if nothing stands in; nil: the answer itself, from state on
	state   state
	pending []byte // of an answer that has ended
	last    bool   // …with nothing behind it
}

// degradedBy is the reason under which a lower tier answers where an answer of that class failed; none: it has not.
func degradedBy(o outcome.Outcome) outcome.Degraded {
	switch o {
	case outcome.Throttled, outcome.Quota:
		return outcome.DegradedUpstreamThrottled
	case outcome.Overloaded, outcome.UpstreamError:
		return outcome.DegradedUpstreamError
	case outcome.Evicted:
		return outcome.DegradedPreempted
	case outcome.Empty:
		return outcome.DegradedEmpty
	}
	return outcome.DegradedNone
}

// fall asks what stands in for an answer that failed.
func (s *Session) fall(dst []Effect, now time.Time, f failure) []Effect {
	f.state = s.state
	s.failure, s.fin.Failed, s.fin.Replied = f, f.why, f.reply
	if !s.admission.Fallback || f.why == outcome.DegradedNone {
		return s.failed(dst, now)
	}
	s.state = falling
	return append(dst, Fallback{f.why})
}

// onFallen answers with what stands in, or goes on as if nobody had been asked.
func (s *Session) onFallen(dst []Effect, now time.Time, ev Fallen) []Effect {
	if s.state != falling {
		return s.impossible(dst, "fallback")
	}
	s.state = s.failure.state
	if ev.Answer == nil {
		return s.failed(dst, now)
	}
	return s.answerWith(dst, *ev.Answer, outcome.First(s.failure.outcome, ev.Answer.Outcome))
}

// failed goes on where nothing stands in.
func (s *Session) failed(dst []Effect, now time.Time) []Effect {
	switch f := s.failure; {
	case f.reply != nil:
		return s.reply(dst, *f.reply, f.outcome)
	case f.state == admitted:
		return s.begin(dst, now)
	case s.body != nil:
		return s.endComplete(dst, now, f.pending, f.last)
	}
	return s.impossible(dst, "no failure")
}

// answerWith answers without the upstream, or in its place.
func (s *Session) answerWith(dst []Effect, a Answered, o outcome.Outcome) []Effect {
	s.fin.Source, s.fin.Status, s.fin.Degraded, s.fin.AnsweredBy = a.Reply.Source, a.Reply.Status, a.Reason, a.Tier
	if a.Reply.Reason != "" {
		s.fin.Details = a.Reply.Reason
	}
	return s.finish(s.cancel(append(dst, Reply{a.Reply})), o)
}

// fallLate ends an answer that has not begun in time: 504.
func (s *Session) fallLate(dst []Effect, now time.Time, why outcome.Degraded, o outcome.Outcome) []Effect {
	if why == outcome.DegradedStalled {
		why = outcome.DegradedSlowFirstToken
	}
	r := outcome.DeadlineReply()
	r.Body = dialect.ErrorBody(s.request.Dialect, dialect.Deadline, why.String())
	return s.fall(dst, now, failure{why: why, outcome: o, reply: &r})
}

// fallCut ends an answer that was cut before anything of it had gone on: 502.
func (s *Session) fallCut(dst []Effect, now time.Time) []Effect {
	r := outcome.CutReply()
	r.Body = dialect.ErrorBody(s.request.Dialect, dialect.Upstream, outcome.DegradedUpstreamTruncated.String())
	return s.fall(dst, now, failure{why: outcome.DegradedUpstreamTruncated, outcome: outcome.Truncated, reply: &r})
}

// fallError gives an error that came inside a 200 the status it should have had; the body is the upstream's own.
func (s *Session) fallError(dst []Effect, now time.Time) []Effect {
	class := s.body.State().Class
	r := outcome.ErrorReply(class)
	r.Body = s.body.FirstError()
	r.Headers = append(r.Headers, outcome.Header{Name: outcome.HeaderTier, Value: s.fin.Tier})
	return s.fall(dst, now, failure{why: degradedBy(class), outcome: class, reply: &r})
}
