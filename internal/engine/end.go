package engine

import (
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// Ended is how a request ended.
type Ended struct {
	Outcome outcome.Outcome
	// Admitted: it went upstream, on Tier and, below the first, for Reason.
	Admitted bool
	Tier     string
	Reason   outcome.Degraded
	// Service and First are the times from its slot to the end of the answer and to its first content; 0: not known.
	Service, First time.Duration
	Attempts       int // of Envoy at the upstream; 0 or 1: no retry
	// The upstream's answer. Whole: Body is all of it, as it came.
	Status   int
	Headers  []outcome.Header
	Body     []byte
	Whole    bool
	Unread   bool // nobody has looked into it
	Dialect  string
	Degraded bool // the upstream itself says that it is
	// Source is who wrote the upstream's answer, and Label what was set on it for the caller.
	Source outcome.Source
	Label  []outcome.Header
	// Reply is what the caller got from us in its place, if it did.
	Reply *outcome.Reply
	// Failed is what was wrong with the answer, for those who wait for it; none: nothing.
	Failed outcome.Degraded
}

// End ends the request, whatever became of it: what it teaches is learned, an answer that may be kept is kept, and whoever
// follows it goes on. The driver calls it last; calling it again does nothing.
func (a *Admission) End(now time.Time, end Ended) {
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return
	}
	a.ended = true
	s, r := a.seats, a.result
	a.seats.holds = false
	a.mu.Unlock()
	a.drop()
	if end.Admitted {
		a.learn(now, end)
	}
	entry := a.entry(now, end)
	var given *replay.Entry
	if r != nil {
		given = r.entry
	}
	a.keep(now, s, entry, given, end)
	a.noteNotStored(s, entry, end)
	if s.following != nil {
		s.following.Leave()
	}
	if r == nil {
		r = resultOf(end, entry)
	}
	shared := r
	if entry != nil && r.entry == entry && !a.shareable(end) {
		shared = &result{} // theirs to ask for
	}
	settleSeat(s.cache, shared)
	settleSeat(s.claim, r)
}

// settleSeat tells those who follow; nil: the caller left, and one of them takes over.
func settleSeat(seat *replay.Seat[*result], r *result) {
	switch {
	case seat == nil || !seat.Leader():
	case r == nil:
		seat.Abort()
	default:
		seat.Land(r)
	}
}

func (a *Admission) learn(now time.Time, end Ended) {
	if end.Outcome.Sample() == outcome.SampleSuccess {
		a.limiter(a.running).Learn(end.Service, end.First)
	}
	a.e.retries.ended(now, end.Attempts)
}

// entry is the answer as it is kept, nil where it is not whole or not good.
func (a *Admission) entry(now time.Time, end Ended) *replay.Entry {
	if !end.Admitted || !end.Whole || end.Reply != nil || end.Status < 200 || end.Status > 299 {
		return nil
	}
	switch end.Outcome {
	case outcome.OK, outcome.DegradedOK, outcome.Capped, outcome.Refusal:
	default:
		return nil
	}
	switch {
	case end.Degraded: // by whom and why is not known: it could only be given again as full
		return nil
	case end.Status == 205 || end.Status == 206: // a part of something, or nothing to repeat
		return nil
	case end.Unread && !(contentType(end.Headers) == "" && gjson.ValidBytes(end.Body)): // a page, a compressed body: nobody has seen that it is an answer
		return nil
	}
	e := &replay.Entry{Status: end.Status, Headers: replay.EndToEnd(end.Headers), Body: end.Body, Dialect: end.Dialect,
		Tier: end.Tier, Reason: end.Reason, Stored: now}
	if c := a.route.Cache; c != nil {
		e.TTL = c.TTL
		if most, ok := replay.AnswerKept(end.Headers, c.Partition...); ok {
			e.TTL = min(e.TTL, most)
		}
	}
	return e
}

// keep stores the answer where it may be stored, and frees the key of one that may not.
func (a *Admission) keep(now time.Time, s seats, e, given *replay.Entry, end Ended) {
	if a.keyed && e != nil && a.cacheable(end) {
		a.e.store.Save(now, a.cache.Tier(end.Tier), e, a.route.keepFor)
		a.e.note("stored")
	}
	switch {
	case !s.holds:
	case e == nil && given != nil: // the answer of another, under this key from now on
		a.e.store.Settle(now, s.held, given, a.route.Idempotency.TTL)
	case e != nil:
		a.e.store.Settle(now, s.held, e, a.route.Idempotency.TTL)
	default:
		a.e.store.Release(now, s.held)
	}
}

// cacheable says whether an answer that is whole may answer other requests: not one that ended at a length limit, was
// refused, or is less than it could be, nor one whose sender forbids it.
func (a *Admission) cacheable(end Ended) bool {
	return a.route.Cache != nil && end.Status != 204 && (end.Outcome == outcome.OK || end.Outcome == outcome.DegradedOK) && a.shareable(end)
}

// shareable says whether the answer may be given to others who have asked the same at the same time: its sender does not
// forbid it.
func (a *Admission) shareable(end Ended) bool {
	if a.route.Cache == nil {
		return true
	}
	_, allowed := replay.AnswerKept(end.Headers, a.route.Cache.Partition...)
	return allowed
}

func contentType(hs []outcome.Header) string {
	for _, h := range hs {
		if h.Name == "content-type" {
			return h.Value
		}
	}
	return ""
}

// resultOf is what followers get of an answer of the upstream; nil: the caller left.
func resultOf(end Ended, e *replay.Entry) *result {
	switch {
	case e != nil:
		return &result{entry: e, why: end.Reason}
	case end.Outcome == outcome.ClientAborted:
		return nil
	case end.Reply != nil:
		return &result{failed: end.Failed, reply: end.Reply, outcome: end.Outcome}
	case end.Status >= 400:
		r := relayed(end)
		return &result{failed: end.Failed, reply: &r, outcome: end.Outcome}
	case end.Failed != outcome.DegradedNone: // it failed in its middle: to those who have nothing of it yet that is an error
		r := broken(end)
		return &result{failed: end.Failed, reply: &r, outcome: end.Outcome}
	}
	return &result{failed: end.Failed}
}

// broken is the error in the place of an answer that failed in its middle.
func broken(end Ended) outcome.Reply {
	id, _ := dialect.ByName(end.Dialect)
	if end.Outcome == outcome.Deadline || end.Outcome == outcome.Stalled {
		r := outcome.DeadlineReply()
		r.Body = dialect.ErrorBody(id, dialect.Deadline, outcome.DegradedDeadline.String())
		return r
	}
	r := outcome.CutReply()
	r.Body = dialect.ErrorBody(id, dialect.Upstream, outcome.DegradedUpstreamTruncated.String())
	return r
}

// relayed is the upstream's error as its other callers get it: labelled as for the first, or, where its body is not whole,
// in our shape.
func relayed(end Ended) outcome.Reply {
	r := outcome.Reply{Status: end.Status, Source: end.Source, Headers: replay.EndToEnd(end.Headers), Body: end.Body}
	if !end.Whole {
		id, _ := dialect.ByName(end.Dialect)
		r.Headers = []outcome.Header{{Name: "content-type", Value: "application/json"}}
		r.Body = dialect.ErrorBody(id, dialect.Upstream, outcome.DegradedUpstreamError.String())
	}
	label := end.Label
	if len(label) == 0 { // it never went to the first: another answer stood in for it
		return r.Marked()
	}
	for _, h := range end.Headers { // as long as the label does not say otherwise
		if retry := h.Name == outcome.HeaderRetryAfter || h.Name == outcome.HeaderRetryAfterMs; retry && !forbids(label) {
			r.Headers = append(r.Headers, h)
		}
	}
	r.Headers = append(r.Headers, label...)
	return r
}

// forbids says whether a label tells the caller not to come back.
func forbids(label []outcome.Header) bool {
	for _, h := range label {
		if h.Name == outcome.HeaderShouldRetry && h.Value == "false" {
			return true
		}
	}
	return false
}

// noteNotStored says why an answer that was to be kept is not.
func (a *Admission) noteNotStored(s seats, e *replay.Entry, end Ended) {
	if !end.Admitted || (!a.keyed && !s.holds) || (e != nil && (!a.keyed || a.cacheable(end))) {
		return
	}
	why := "not_stored_error"
	switch end.Outcome {
	case outcome.OK, outcome.DegradedOK:
		why = "not_stored_private"
		if end.Degraded {
			why = "not_stored_degraded"
		} else if !end.Whole {
			why = "not_stored_too_large"
		}
	case outcome.Capped:
		why = "not_stored_capped"
	case outcome.Refusal:
		why = "not_stored_refused"
	case outcome.Empty:
		why = "not_stored_empty"
	case outcome.Truncated, outcome.Deadline, outcome.Stalled, outcome.Evicted, outcome.ClientAborted:
		why = "not_stored_incomplete"
	}
	a.e.note(why)
}
