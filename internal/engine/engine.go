package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// Retry-after of a shed while there is no forecast: uniform between the two, so that callers do not return together.
const (
	minRetry = 500 * time.Millisecond
	maxRetry = 1000 * time.Millisecond
)

// Engine decides. Make one with New.
type Engine struct {
	current atomic.Pointer[compiled]

	mu       sync.Mutex                // guards the fields below; nothing blocks or calls out while it is held
	limiters map[string]*limit.Limiter // by tier name; never removed, a request may still hold its snapshot
	closed   outcome.Shed              // set once brownout is ending
}

// compiled is a snapshot with its limiters resolved. Immutable.
type compiled struct {
	policy   *policy.Snapshot
	limiters []*limit.Limiter // by index of policy.Tiers
}

// New makes an engine for a policy.
func New(now time.Time, s *policy.Snapshot) *Engine {
	e := &Engine{limiters: make(map[string]*limit.Limiter)}
	e.Apply(now, s)
	return e
}

// Apply makes s the policy of requests that arrive from now on. Slots and waiting requests are kept.
func (e *Engine) Apply(now time.Time, s *policy.Snapshot) {
	c := &compiled{policy: s, limiters: make([]*limit.Limiter, len(s.Tiers))}
	var resized []*limit.Limiter
	var sizes []limit.Config
	e.mu.Lock()
	for i, t := range s.Tiers {
		cfg := limit.Config{Concurrency: t.Model.Concurrency, Queue: t.Model.Queue}
		l, ok := e.limiters[t.Name]
		if ok {
			resized, sizes = append(resized, l), append(sizes, cfg)
		} else {
			l = limit.New(cfg)
			l.Refuse(e.closed)
			e.limiters[t.Name] = l
		}
		c.limiters[i] = l
	}
	e.current.Store(c)
	e.mu.Unlock()
	for i, l := range resized {
		l.Reconfigure(now, sizes[i])
	}
}

// Policy is the policy in force.
func (e *Engine) Policy() *policy.Snapshot { return e.current.Load().policy }

// Offer decides on a request that arrived at now. For a Parked verdict deliver is called once with the one that
// settles it, unless the returned Waiting is abandoned first; for every other verdict deliver is never called.
func (e *Engine) Offer(now time.Time, r Request, deliver func(Verdict)) (Verdict, *Waiting) {
	c := e.current.Load()
	rt, ok := c.policy.Match(r.Method, r.Path)
	if !ok {
		return Verdict{Kind: Unmatched}, nil
	}
	w := readWishes(&r, rt, c.policy)
	d := w.bounds.Resolve(now, limits(rt.Budget))
	v := Verdict{Route: rt.Name, Class: w.class, Deadline: d, Ignored: w.ignored}
	if d.Expired() {
		return refuse(v, rt, outcome.ShedDeadlineExpired, ""), nil
	}
	wk := &Waiting{c: c, route: rt, last: lastRung(rt, c.policy, w.degrade), base: v, deliver: deliver}
	wk.plan(w, d, r.MaxWait)
	wk.unknown = unknownRungs(rt, c.policy, wk.last, r.Routes)
	return wk.walk(now, 0)
}

// unknownRungs are the rungs up to last whose tier Envoy has no route for: after a reload its configuration may be behind
// the policy. If that is all of them none is left out: Envoy then sends the request to its own best tier.
func unknownRungs(rt *policy.Route, s *policy.Snapshot, last int, known map[string]bool) map[int]bool {
	if known == nil {
		return nil
	}
	var out map[int]bool
	for i, rung := range rt.Ladder[:last+1] {
		if !known[rt.Name+"/"+s.Tiers[rung.Tier].Name] {
			if out == nil {
				out = make(map[int]bool)
			}
			out[i] = true
		}
	}
	if len(out) == last+1 {
		return nil
	}
	return out
}

// lastRung is the lowest rung the caller accepts.
func lastRung(rt *policy.Route, s *policy.Snapshot, degrade string) int {
	if degrade == degradeNever {
		return 0
	}
	for i, rung := range rt.Ladder {
		if s.Tiers[rung.Tier].Name == degrade {
			return i
		}
	}
	return len(rt.Ladder) - 1
}

func refuse(v Verdict, rt *policy.Route, reason outcome.Shed, tier string) Verdict {
	v.Kind, v.Shed, v.ShedTier, v.ShedStatus = Shed, reason, tier, shedStatus(rt, reason)
	v.RetryAfter = minRetry + rand.N(maxRetry-minRetry+1)
	return v
}

func shedStatus(rt *policy.Route, reason outcome.Shed) int {
	if status, ok := rt.ShedStatus[reason.String()]; ok {
		return status
	}
	return 503
}

// NextWake is when Tick has work next, or false.
func (e *Engine) NextWake() (time.Time, bool) {
	var next time.Time
	found := false
	for _, l := range e.all() {
		if t, ok := l.NextWake(); ok && (!found || t.Before(next)) {
			next, found = t, true
		}
	}
	return next, found
}

// Tick lets requests give up whose time to wait has passed.
func (e *Engine) Tick(now time.Time) {
	for _, l := range e.all() {
		l.Tick(now)
	}
}

// Close refuses all that wait and all that comes with reason; slots in use stay valid.
func (e *Engine) Close(now time.Time, reason outcome.Shed) {
	e.mu.Lock()
	e.closed = reason
	e.mu.Unlock()
	ls := e.all()
	for _, l := range ls { // all shut before the first lets its waiters walk on
		l.Refuse(reason)
	}
	for _, l := range ls {
		l.Flush(now, reason)
	}
}

func (e *Engine) all() []*limit.Limiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	ls := make([]*limit.Limiter, 0, len(e.limiters))
	for _, l := range e.limiters {
		ls = append(ls, l)
	}
	return ls
}
