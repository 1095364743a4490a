package engine

import (
	"sync"
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// Waiting is one request on its way down the ladder. It never goes back up.
type Waiting struct {
	c       *compiled
	route   *policy.Route
	last    int          // lowest accepted rung
	unknown map[int]bool // rungs whose tier Envoy has no route for: they cannot be reached
	want    limit.Want
	onGive  outcome.Shed // what giving up means for this request
	deliver func(Verdict)

	mu        sync.Mutex // guards the fields below; nothing blocks or calls out while it is held
	base      Verdict    // what every verdict of this request says
	first     outcome.Shed
	firstTier string
	rung      int
	handle    limit.Handle
	abandoned bool
}

// plan turns wishes into what is asked of each limiter. Latest start is killAt: there is no service quantile yet.
func (w *Waiting) plan(ws wishes, d deadline.Deadline, maxWait time.Duration) {
	w.want = limit.Want{Priority: ws.priority, Deadline: d.First, LatestStart: d.KillAt(), GiveUp: d.KillAt()}
	w.onGive = outcome.ShedDeadlineExpired
	if t := d.Arrival.Add(maxWait); maxWait > 0 && t.Before(w.want.GiveUp) {
		w.want.GiveUp = t
	}
	if t := d.Arrival.Add(ws.maxQueue); ws.hasQueue && t.Before(w.want.GiveUp) {
		w.want.GiveUp, w.onGive = t, outcome.ShedQueueFull
	}
	w.base.GiveUp = w.want.GiveUp
}

// walk offers the request to the tiers from rung on, until one does not refuse it.
func (w *Waiting) walk(now time.Time, rung int) (Verdict, *Waiting) {
	for ; rung <= w.last; rung++ {
		if w.unknown[rung] {
			continue
		}
		if !w.enter(rung) {
			return w.settled(), nil
		}
		d, h := w.limiter(rung).Offer(now, w.want, func(g limit.Grant) { w.granted(rung, g) })
		switch d.Kind {
		case limit.Admitted:
			return w.admitted(rung, d.Ticket, 0), nil
		case limit.Parked:
			w.park(rung, h)
			v := w.settled()
			v.Kind = Parked
			return v, w
		}
		w.refused(rung, d.Reason)
	}
	return w.endOfLadder(), nil
}

// granted continues where the request was parked.
func (w *Waiting) granted(rung int, g limit.Grant) {
	var v Verdict
	switch g.Kind {
	case limit.Admitted:
		v = w.admitted(rung, g.Ticket, g.Waited)
	case limit.GaveUp:
		w.waited(rung, g.Waited)
		w.refused(rung, w.onGive)
		v, _ = w.walk(g.At, rung+1)
	default:
		w.waited(rung, g.Waited)
		w.refused(rung, g.Reason)
		v, _ = w.walk(g.At, rung+1)
	}
	if v.Kind == Parked {
		return
	}
	w.mu.Lock()
	gone := w.abandoned
	w.mu.Unlock()
	if !gone {
		w.deliver(v)
		return
	}
	if v.Ticket != nil {
		v.Ticket.Done(g.At)
	}
}

// Abandon ends the wait: the queue forgets the request. A verdict already on its way may still be delivered, and its
// receiver owns the ticket it brings.
func (w *Waiting) Abandon() {
	w.mu.Lock()
	w.abandoned = true
	h, rung := w.handle, w.rung
	w.mu.Unlock()
	w.limiter(rung).Abandon(h)
}

func (w *Waiting) limiter(rung int) *limit.Limiter { return w.c.limiters[w.route.Ladder[rung].Tier] }

func (w *Waiting) tier(rung int) string { return w.c.policy.Tiers[w.route.Ladder[rung].Tier].Name }

// enter moves down to rung; false when the request has been abandoned meanwhile.
func (w *Waiting) enter(rung int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rung, w.handle = rung, limit.Handle{}
	return !w.abandoned
}

// park notes where the request waits, unless a grant has already moved it on. A request abandoned between the offer
// and here leaves the queue again.
func (w *Waiting) park(rung int, h limit.Handle) {
	w.mu.Lock()
	gone := w.abandoned
	if w.rung == rung {
		w.handle = h
	}
	w.mu.Unlock()
	if gone {
		w.limiter(rung).Abandon(h)
	}
}

// refused keeps the first reason, save that an end of brownout itself is said as such.
func (w *Waiting) refused(rung int, reason outcome.Shed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == outcome.ShedNone || (reason == outcome.ShedShuttingDown && w.first != reason) {
		w.first, w.firstTier = reason, w.tier(rung)
	}
}

func (w *Waiting) waited(rung int, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.base.Waits = append(w.base.Waits, Wait{w.tier(rung), d})
}

func (w *Waiting) admitted(rung int, t *limit.Ticket, waited time.Duration) Verdict {
	w.waited(rung, waited)
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.base
	v.Kind, v.Tier, v.Ticket, v.Stream = Admitted, w.tier(rung), t, w.route.Stream
	if rung > 0 {
		v.Reason = w.first.Rung()
	}
	v.ShedStatus = shedStatus(w.route, outcome.ShedDeadlineExpired)
	return v
}

func (w *Waiting) endOfLadder() Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return refuse(w.base, w.route, w.first, w.firstTier)
}

func (w *Waiting) settled() Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.base
}
