package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/policy"
)

// Retry-after of a shed while there is no forecast: uniform between the two, so that callers do not return together.
const (
	minRetry = 500 * time.Millisecond
	maxRetry = 1000 * time.Millisecond
)

// Bounds on the bytes held for requests.
const (
	maxBodies = 256 << 20 // bodies of requests that are waiting; above it: shed, reason memory
	maxKept   = 1 << 20   // of one answer; a longer one is not kept
)

// Options are what an engine works with beside the policy. The zero value works.
type Options struct {
	Store  replay.Store        // default: this process's memory, of the size the first policy says
	Secret []byte              // of the HMAC over credentials; default: a random one
	Replay func(result string) // told of everything that happens to keys and kept answers; default: nobody
	Now    func() time.Time    // default: time.Now
	// Complain hears of a panic in what follows an answer of the store; the request is refused. Default: nobody.
	Complain func(what string, p any)
}

// Engine decides. Make one with New.
type Engine struct {
	current  atomic.Pointer[compiled]
	store    replay.Store
	keys     *replay.Keys
	flights  *replay.Flights[*result]
	note     func(result string)
	now      func() time.Time
	complain func(what string, p any)
	clock    clock
	retries  retryBudget
	bodies   atomic.Int64 // bytes of bodies held

	mu       sync.Mutex                // guards the fields below; nothing blocks or calls out while it is held
	limiters map[string]*limit.Limiter // by tier name; never removed, a request may still hold its snapshot
	dwells   map[dwellKey]*dwell       // never removed, alike
	closed   outcome.Shed              // set once brownout is ending
}

// compiled is a snapshot with its limiters resolved. Immutable.
type compiled struct {
	policy   *policy.Snapshot
	limiters []*limit.Limiter // by index of policy.Tiers; nil for a tier that needs no compute
	routes   map[*policy.Route]*route
}

// New makes an engine for a policy.
func New(now time.Time, s *policy.Snapshot, o Options) *Engine {
	e := &Engine{limiters: make(map[string]*limit.Limiter), dwells: make(map[dwellKey]*dwell), flights: replay.NewFlights[*result](),
		store: o.Store, note: o.Replay, now: o.Now, complain: o.Complain}
	if e.complain == nil {
		e.complain = func(string, any) {}
	}
	if e.store == nil {
		e.store = replay.NewMemory(s.Store.Memory)
	}
	if e.note == nil {
		e.note = func(string) {}
	}
	if e.now == nil {
		e.now = time.Now
	}
	e.keys = replay.NewKeys(o.Secret)
	e.Apply(now, s)
	return e
}

// Apply makes s the policy of requests that arrive from now on. Slots, waiting requests and kept answers are kept.
func (e *Engine) Apply(now time.Time, s *policy.Snapshot) {
	c := &compiled{policy: s, limiters: make([]*limit.Limiter, len(s.Tiers)), routes: make(map[*policy.Route]*route, len(s.Routes))}
	var resized []*limit.Limiter
	var sizes []limit.Config
	e.mu.Lock()
	for i, t := range s.Tiers {
		if t.Model == nil {
			continue
		}
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
	for i := range s.Routes {
		c.routes[&s.Routes[i]] = e.compileRouteLocked(s, &s.Routes[i])
	}
	e.current.Store(c)
	e.mu.Unlock()
	for i, l := range resized {
		l.Reconfigure(now, sizes[i])
	}
}

// Policy is the policy in force.
func (e *Engine) Policy() *policy.Snapshot { return e.current.Load().policy }

// Offer decides on a request that arrived at now. Of a matched one there is an Admission, which the driver ends. While the
// verdict is NeedBody, the driver calls Admission.Body with it. For a Looking or Parked verdict deliver is called later:
// perhaps with Parked, then once with the verdict that settles it, unless the request is abandoned first.
func (e *Engine) Offer(now time.Time, r Request, deliver func(Verdict)) (Verdict, *Admission) {
	a := e.admission(now, r, deliver)
	if a == nil {
		return Verdict{Kind: Unmatched}, nil
	}
	rt := a.route
	switch closed := e.closing(); {
	case a.due.Expired():
		return a.call(func() { a.shed(now, outcome.ShedDeadlineExpired, "") }), a
	case !r.More || !rt.needsBody(a.req.Dialect):
		return a.call(func() { a.begin(now, nil) }), a
	case closed != outcome.ShedNone:
		return a.call(func() { a.shed(now, closed, a.tier(rt.top)) }), a
	case e.bodies.Load()+r.Length > maxBodies:
		return a.call(func() { a.shed(now, outcome.ShedMemory, "") }), a
	}
	v := a.base
	v.Kind, v.ShedStatus = NeedBody, shedStatus(rt.Route, outcome.ShedDeadlineExpired)
	return v, a
}

// admission reads the headers of a request; nil: no route matches it.
func (e *Engine) admission(now time.Time, r Request, deliver func(Verdict)) *Admission {
	c := e.current.Load()
	matched, ok := c.policy.Match(r.Method, r.Path)
	if !ok {
		return nil
	}
	rt := c.routes[matched]
	w := readWishes(&r, matched, c.policy)
	d := w.bounds.Resolve(now, limits(rt.Budget))
	if rt.pinned != nil {
		r.Dialect = *rt.pinned
	}
	a := &Admission{e: e, c: c, route: rt, req: r, wishes: w, last: lastRung(rt, c.policy, w.degrade), deliver: deliver,
		base: Verdict{Route: rt.Name, Class: w.class, Deadline: d, Ignored: w.ignored, Pinned: rt.pinned}}
	a.plan(d, r.MaxWait)
	a.unknown = unknownRungs(rt, c.policy, a.last, r.Routes)
	return a
}

func (e *Engine) closing() outcome.Shed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// unknownRungs are the rungs up to last whose tier Envoy has no route for: after a reload its configuration may be behind
// the policy. If that is all of them none is left out: Envoy then sends the request to its own best tier.
func unknownRungs(rt *route, s *policy.Snapshot, last int, known map[string]bool) map[int]bool {
	if known == nil {
		return nil
	}
	var out map[int]bool
	models := 0
	for i, rung := range rt.Ladder[:last+1] {
		if s.Tiers[rung.Tier].Model == nil {
			continue
		}
		models++
		if !known[rt.Name+"/"+s.Tiers[rung.Tier].Name] {
			if out == nil {
				out = make(map[int]bool)
			}
			out[i] = true
		}
	}
	if len(out) == models {
		return nil
	}
	return out
}

// lastRung is the lowest rung the caller accepts: never means the first that computes.
func lastRung(rt *route, s *policy.Snapshot, degrade string) int {
	if degrade == degradeNever {
		return rt.top
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
	if t, ok := e.clock.next(); ok && (!found || t.Before(next)) {
		next, found = t, true
	}
	return next, found
}

// Tick lets requests give up whose time to wait has passed.
func (e *Engine) Tick(now time.Time) {
	for _, l := range e.all() {
		l.Tick(now)
	}
	e.clock.tick(now)
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
