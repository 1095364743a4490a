package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/degrade"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/policy"
)

// RungWhy is one tier of the ladder, and what it would do if the request came to it now.
type RungWhy struct {
	Tier string `json:"tier"`
	Kind string `json:"kind"` // model, cache or template
	Does Does   `json:"does"`
	// Why is the reason of a refusal, or what keeps the tier from being reached.
	Why      string      `json:"why,omitempty"`
	Degraded bool        `json:"degraded"` // its answers are labelled so
	WaitOver *Millis     `json:"wait_over_ms,omitempty"`
	Low      bool        `json:"kept_to"`    // requests that find no slot above go here without waiting
	Kept     bool        `json:"kept_first"` // an answer of the tier that is kept comes before its slots
	Model    *ModelWhy   `json:"model,omitempty"`
	Rewrite  *RewriteWhy `json:"rewrite,omitempty"`
	Retry    *RetryWhy   `json:"retry,omitempty"`
	StaleFor Millis      `json:"stale_for_ms,omitempty"` // of a cache
	Stream   bool        `json:"stream"`                 // of a template: how it answers
}

// Does is what a tier would do.
type Does string

// What tiers do.
const (
	DoesAdmit   Does = "slot_at_once"
	DoesPark    Does = "waits"
	DoesRefuse  Does = "refuses"
	DoesAnswer  Does = "answers"
	DoesLookUp  Does = "answers_if_kept"
	DoesNothing Does = "nothing"
	NotAccepted Does = "not_accepted"
)

// ModelWhy are the figures of a tier that computes.
type ModelWhy struct {
	Limit    int    `json:"limit"`
	InFlight int    `json:"in_flight"`
	Queue    int    `json:"queue"`
	Waiting  int    `json:"waiting"`
	WaitUpTo Millis `json:"wait_up_to_ms,omitempty"` // of one that waits
	Known    bool   `json:"wait_known"`              // false: without samples no wait is forecast
	Forecast Millis `json:"wait_forecast_ms"`
}

// RewriteWhy is what is changed of the request for a tier. Values of headers are the policy's, and stay there.
type RewriteWhy struct {
	Path    string   `json:"path,omitempty"` // of the query only names
	From    string   `json:"model_from,omitempty"`
	To      string   `json:"model_to,omitempty"`
	Kept    bool     `json:"model_kept"` // the request has no place for another model
	Headers []string `json:"headers"`
}

// RetryWhy says whether Envoy may repeat the request.
type RetryWhy struct {
	Allowed bool   `json:"allowed"`
	Why     string `json:"not_because,omitempty"` // policy, caller, time or budget
}

// rehearse is an engine under s that is as busy as st says. How long a rung is still kept to is not in st: it is taken to
// have been entered now.
func rehearse(now time.Time, s *policy.Snapshot, st State) *Engine {
	e := New(now, s, Options{Now: func() time.Time { return now }})
	for _, t := range st.Tiers {
		if l := e.limiters[t.Tier]; l != nil {
			occupy(now, l, t)
		}
	}
	for _, rt := range s.Routes {
		for _, rung := range st.Rungs {
			if d := e.dwells[dwellKey{rt.Name, rung.Tier}]; d != nil && rung.Low && rung.Route == rt.Name {
				d.enter(now, degrade.Rule{Dwell: rt.Dwell})
			}
		}
	}
	return e
}

// longer than any request of a rehearsal lives.
const longer = time.Hour

// occupy makes a new limiter look like t. Of waiting requests that t does not list, the last listed one is repeated.
func occupy(now time.Time, l *limit.Limiter, t TierState) {
	nobody := func(limit.Grant) {}
	if t.Used > 0 {
		l.Reconfigure(now, limit.Config{Concurrency: t.Used, Queue: t.Waiting})
		for range t.Used {
			l.Offer(now, limit.Want{LatestStart: now.Add(longer), GiveUp: now.Add(longer)}, nobody)
		}
		w := limit.Waiter{GivesUp: longer, Deadline: longer}
		for i := range t.Waiting {
			if i < len(t.Waiters) {
				w = t.Waiters[i]
			}
			end := now.Add(w.GivesUp)
			l.Offer(now, limit.Want{Priority: w.Priority, Deadline: now.Add(w.Deadline), LatestStart: end, GiveUp: end}, nobody)
		}
	}
	l.Reconfigure(now, limit.Config{Concurrency: t.Limit, Queue: t.Queue})
	for range t.Samples.ServiceCount {
		l.Learn(t.Samples.Service, 0)
	}
	for range t.Samples.FirstCount {
		l.Learn(0, t.Samples.First)
	}
}

// explainRung asks one rung as the walk does, and gives back what it got.
func explainRung(now time.Time, a *Admission, rung int) RungWhy {
	t := a.c.policy.Tiers[a.route.Ladder[rung].Tier]
	out := RungWhy{Tier: t.Name, Degraded: rung != a.route.top}
	if r := a.route.Ladder[rung]; r.HasWaitOver {
		w := Millis(r.WaitOver)
		out.WaitOver = &w
	}
	kept := a.keyed && !a.bypass
	switch {
	case t.Model != nil:
		out.Kind, out.Kept = "model", kept
		explainModel(now, a, rung, &out)
	case t.Cache != nil:
		out.Kind, out.Does, out.StaleFor = "cache", DoesLookUp, Millis(t.Cache.StaleFor)
		switch {
		case a.bypass:
			out.Does, out.Why = DoesNothing, "no_cache"
		case !kept:
			out.Does, out.Why = DoesNothing, "no_key"
		}
	default:
		out.Kind, out.Does, out.Stream = "template", DoesAnswer, a.facts.Stream
	}
	if rung > a.last {
		out.Does, out.Why = NotAccepted, headerDegrade
	}
	return out
}

// explainModel asks a limiter.
func explainModel(now time.Time, a *Admission, rung int, out *RungWhy) {
	l := a.limiter(rung)
	s := l.Stats()
	m := &ModelWhy{Limit: s.Limit, InFlight: s.Used, Queue: s.Queue, Waiting: s.Waiting, Forecast: Millis(l.Forecast(a.want)),
		Known: s.Used < s.Limit || l.Samples().ServiceCount > 0}
	out.Model, out.Rewrite = m, explainRewrite(a, rung)
	why := a.noRetry(now, rung)
	out.Retry = &RetryWhy{why == "", why}
	want, _ := a.patience(now, rung)
	switch d, h := l.Offer(now, want, func(limit.Grant) {}); d.Kind {
	case limit.Admitted:
		out.Does = DoesAdmit
		d.Ticket.Done(now)
	case limit.Parked:
		out.Does, m.WaitUpTo = DoesPark, Millis(want.GiveUp.Sub(now))
		l.Abandon(h)
	default:
		out.Does, out.Why = DoesRefuse, d.Reason.String()
	}
}

// explainRewrite is nil where the tier changes nothing.
func explainRewrite(a *Admission, rung int) *RewriteWhy {
	to := a.c.policy.Tiers[a.route.Ladder[rung].Tier].Model.Rewrite
	r := a.rewrite(rung)
	if !r.Named && len(r.Headers) == 0 {
		return nil
	}
	out := &RewriteWhy{Headers: []string{}, From: a.facts.Model, To: to.Model}
	if r.Path != "" {
		out.Path = withoutValues(r.Path)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, h.Name)
	}
	if to.Model == "" {
		out.From = ""
	}
	out.Kept = to.Model != "" && to.Model != a.facts.Model && r.Body == nil && !modelMoved(a, to, r)
	return out
}

// modelMoved says whether the path was changed for more than the tier's own path, which is the model in it.
func modelMoved(a *Admission, to policy.Rewrite, r Rewrite) bool {
	path := a.req.Path
	if to.Path != "" {
		path = rewritePath(a.route.Match.Path, path, to.Path)
	}
	return r.Path != "" && r.Path != path
}
