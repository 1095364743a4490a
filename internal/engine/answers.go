package engine

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/answer"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// withoutCompute is the answer of a rung that needs no slot: a template, or what the store has for its tier. why is the
// reason it answers in place of a better one.
func (a *Admission) withoutCompute(now time.Time, rung int, why outcome.Degraded) (Verdict, *result, bool) {
	t := a.c.policy.Tiers[a.route.Ladder[rung].Tier]
	switch {
	case t.Template != nil && a.never():
	case t.Template != nil:
		return a.template(now, rung, why), &result{failed: why}, true // followers see for themselves what they accept
	case t.Cache != nil:
		for i, e := range a.entries {
			if e == nil || (!e.Fresh(now) && (a.never() || e.Age(now) > e.TTL+t.Cache.StaleFor)) {
				continue
			}
			reason := a.standIn(now, i, e, why)
			return a.replayed(now, e, reason), &result{entry: e, why: reason}, true
		}
	case rung != a.route.top && rung < len(a.entries) && a.entries[rung] != nil && a.entries[rung].Fresh(now):
		return a.replayed(now, a.entries[rung], why), &result{entry: a.entries[rung], why: why}, true
	}
	return Verdict{}, nil, false
}

// never says whether the caller takes nothing that is degraded.
func (a *Admission) never() bool { return a.wishes.degrade == degradeNever }

// standIn is the reason under which a kept answer of rung stands in for a better one; none: it is as good.
func (a *Admission) standIn(now time.Time, rung int, e *replay.Entry, why outcome.Degraded) outcome.Degraded {
	switch {
	case !e.Fresh(now):
		return outcome.DegradedStale
	case rung == a.route.top:
		return outcome.DegradedNone
	}
	return why
}

// replayed gives a kept answer again, labelled for why it is given now.
func (a *Admission) replayed(now time.Time, e *replay.Entry, why outcome.Degraded) Verdict {
	id, _ := dialect.ByName(e.Dialect)
	contentType := contentType(e.Headers)
	var l *dialect.Label
	if why != outcome.DegradedNone {
		l = a.label(e.Tier, why)
	}
	r := outcome.ReplayReply(e.Status, e.Tier, why, e.Age(now))
	kept := e.Headers
	if l != nil { // the label changes the bytes they speak of
		kept = withoutDigests(kept)
	}
	r.Headers = append(kept[:len(kept):len(kept)], r.Headers...)
	r.Body = answer.Relabel(id, contentType, e.Body, dialect.Options{}, l)
	streaming(&r, contentType)
	result := "hit"
	if why == outcome.DegradedStale {
		result = "stale"
	}
	a.e.note(result)
	return Verdict{Reply: r, Outcome: outcome.Replayed, Tier: e.Tier, Reason: why}
}

// withoutDigests leaves out headers that speak of exact bytes.
func withoutDigests(hs []outcome.Header) []outcome.Header {
	return slices.DeleteFunc(slices.Clone(hs), func(h outcome.Header) bool {
		return h.Name == "etag" || h.Name == "content-md5" || h.Name == "digest" || h.Name == "content-digest"
	})
}

// template answers with the fixed text of a rung.
func (a *Admission) template(now time.Time, rung int, why outcome.Degraded) Verdict {
	if why == outcome.DegradedNone {
		why = outcome.DegradedQueuePressure
	}
	t := dialect.Template{ID: a.req.Dialect, Path: a.req.Path, Stream: a.facts.Stream, IncludeUsage: a.facts.IncludeUsage, Model: a.facts.Model,
		Text: a.c.policy.Tiers[a.route.Ladder[rung].Tier].Template.Text, Created: now, Label: *a.label(a.tier(rung), why)}
	body, contentType := t.Append(nil)
	r := outcome.TemplateReply(a.tier(rung), why, contentType)
	r.Body = body
	streaming(&r, contentType)
	return Verdict{Reply: r, Outcome: outcome.DegradedOK, Tier: a.tier(rung), Reason: why}
}

func (a *Admission) label(tier string, why outcome.Degraded) *dialect.Label {
	return &dialect.Label{Tier: tier, Reason: why, DeadlineMs: a.due.Budget.Milliseconds()}
}

// streaming asks proxies not to buffer an event stream.
func streaming(r *outcome.Reply, contentType string) {
	if strings.HasPrefix(contentType, "text/event-stream") {
		r.Headers = append(r.Headers, outcome.Header{Name: "x-accel-buffering", Value: "no"})
	}
}

// Fallback is the answer of an accepted tier below the one that ran and that needs no compute, for a request whose
// answer failed for why before anything of it had gone on.
func (a *Admission) Fallback(now time.Time, why outcome.Degraded) (Verdict, bool) {
	a.mu.Lock()
	from := a.running + 1
	a.mu.Unlock()
	for rung := from; rung <= a.last; rung++ {
		if v, _, ok := a.withoutCompute(now, rung, why); ok {
			v.Kind = Answered
			return v, true
		}
	}
	return Verdict{}, false
}

// refuseAs settles with an error that is the caller's to mend, or that of another request under the same key.
func (a *Admission) refuseAs(now time.Time, r outcome.Reply) {
	a.answer(now, Verdict{Reply: r, Outcome: outcome.BadRequest}, &result{conflict: true, reply: &r})
}

// conflict is the 409 of a request whose key is in flight; SDKs repeat it after Retry-After (RFC 9110 §10.2.3).
func (a *Admission) conflict() outcome.Reply {
	a.e.note("conflict")
	r := outcome.RefusalReply(409)
	r.Reason = "in_flight"
	r.Headers = append(r.Headers, outcome.Header{Name: outcome.HeaderRetryAfter, Value: strconv.Itoa(conflictRetry)})
	r.Body = dialect.ErrorBody(a.req.Dialect, dialect.Conflict, r.Reason)
	return r
}

// conflictRetry is the Retry-After of a 409, in seconds.
const conflictRetry = 1

func (a *Admission) mismatch() outcome.Reply {
	a.e.note("mismatch")
	r := outcome.RefusalReply(422)
	r.Reason = "payload_mismatch"
	r.Body = dialect.ErrorBody(a.req.Dialect, dialect.Idempotency, r.Reason)
	return r
}

func (a *Admission) malformedKey() outcome.Reply {
	a.e.note("malformed_key")
	r := outcome.RefusalReply(400)
	r.Reason = "idempotency_key"
	r.Body = dialect.ErrorBody(a.req.Dialect, dialect.BadRequest, r.Reason)
	return r
}
