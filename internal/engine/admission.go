package engine

import (
	"sync"
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// Admission is one matched request from its headers to its end: where it waits, what it may be answered with, and who
// else waits for its answer. Its driver calls Body if it was asked to, Abandon if the caller leaves before a verdict,
// Fallback where an answer of the upstream failed, and End once, last.
type Admission struct {
	e       *Engine
	c       *compiled
	route   *route
	req     Request // its headers are dropped once the keys are made
	wishes  wishes
	last    int          // lowest accepted rung
	unknown map[int]bool // rungs whose tier Envoy has no route for: they cannot be reached
	due     deadline.Deadline
	want    limit.Want
	onGive  outcome.Shed // what giving up means for this request
	deliver func(Verdict)
	sdkTry  bool // a caller's own retry: Envoy adds none

	// Set before anything else can see the request, then only read.
	facts   dialect.Facts
	body    []byte
	part    bool // a part of the answer is asked for
	keyed   bool // cache is set: the answer may be kept
	bypass  bool // …but none that is there may be given
	cache   replay.Key
	idem    replay.Key // with claims
	print   replay.Key
	claims  bool            // the caller sent an idempotency key
	entries []*replay.Entry // by rung: what the store has for its tier; nil where nothing

	mu        sync.Mutex // guards the fields below; nothing blocks or calls out while it is held
	base      Verdict    // what every verdict of this request says
	first     outcome.Shed
	firstTier string
	rung      int
	handle    limit.Handle
	abandoned bool
	ended     bool
	inside    bool     // a call of the driver's is running: it takes the verdict
	ready     *Verdict // for that call
	final     bool     // a verdict that settles the request has been given
	tries     int      // left to ask for a key; belongs to whoever asks
	held      int64    // bytes of the body that count as held
	seats     seats
	ring      *alarm  // of the landing that is waited for
	result    *result // what followers get, once it is known here
	running   int     // rung that was admitted
}

// Body takes the request's body and decides; every verdict but Parked is final.
func (a *Admission) Body(now time.Time, body []byte) Verdict {
	return a.call(func() { a.begin(now, body) })
}

// call runs a step of the decision. What it settles is returned; if it settles nothing the request is parked.
func (a *Admission) call(step func()) Verdict {
	a.mu.Lock()
	a.inside = true
	a.mu.Unlock()
	step()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside = false
	if v := a.ready; v != nil {
		a.ready = nil
		return *v
	}
	v := a.base
	v.Kind = Looking
	return v
}

// settle hands a verdict to the call that is running, or delivers it. Of an abandoned request the ticket goes back.
func (a *Admission) settle(now time.Time, v Verdict) {
	a.mu.Lock()
	dropped := a.abandoned || a.final
	a.final = a.final || v.Kind != Parked
	switch {
	case dropped: // nobody waits, or a verdict has been given already
		a.mu.Unlock()
		if v.Ticket != nil {
			v.Ticket.Done(now)
		}
	case a.inside:
		if a.ready == nil || a.ready.Kind == Parked { // a grant may overtake the news of the wait
			a.ready = &v
		}
		a.mu.Unlock()
	default:
		a.mu.Unlock()
		a.deliver(v)
	}
}

// begin decides once all is there that the decision needs: replays first, then the ladder.
func (a *Admission) begin(now time.Time, body []byte) {
	if a.due.TooLate(now) {
		a.shed(now, outcome.ShedDeadlineExpired, "")
		return
	}
	if !a.reserve(int64(len(body))) {
		a.shed(now, outcome.ShedMemory, "")
		return
	}
	if reply, ok := a.readBody(body); !ok {
		a.refuseAs(now, reply)
		return
	}
	if a.claims {
		a.joinClaim(now)
		return
	}
	a.proceed(now)
}

// Abandon ends the wait: queues and flights forget the request. A verdict already on its way may still be delivered,
// and its receiver owns the ticket it brings.
func (a *Admission) Abandon() {
	a.mu.Lock()
	a.abandoned = true
	h, rung := a.handle, a.rung
	a.mu.Unlock()
	if l := a.limiter(rung); l != nil {
		l.Abandon(h)
	}
}

// shed refuses with reason.
func (a *Admission) shed(now time.Time, reason outcome.Shed, tier string) {
	a.mu.Lock()
	v := refuse(a.base, a.route.Route, reason, tier)
	a.result = &result{shed: reason, tier: tier}
	a.mu.Unlock()
	a.settle(now, v)
}

// answer settles with an answer of ours; r is what followers get.
func (a *Admission) answer(now time.Time, v Verdict, r *result) {
	a.mu.Lock()
	v.Route, v.Class, v.Deadline, v.Ignored, v.Waits = a.base.Route, a.base.Class, a.base.Deadline, a.base.Ignored, a.base.Waits
	v.Kind, a.result = Answered, r
	a.mu.Unlock()
	a.settle(now, v)
}

// reserve counts n bytes of a body as held; false: there is no room for them.
func (a *Admission) reserve(n int64) bool {
	if a.e.bodies.Add(n) > maxBodies {
		a.e.bodies.Add(-n)
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held += n
	return true
}

// drop ends the holding of the body.
func (a *Admission) drop() {
	a.mu.Lock()
	n := a.held
	a.held, a.body = 0, nil
	a.mu.Unlock()
	a.e.bodies.Add(-n)
}
