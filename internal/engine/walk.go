package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/degrade"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// plan turns wishes into what is asked of each limiter. Latest start is killAt: there is no service quantile yet.
func (a *Admission) plan(d deadline.Deadline, maxWait time.Duration) {
	a.due = d
	hold := d.KillAt()
	if t := d.Arrival.Add(maxWait); maxWait > 0 && t.Before(hold) {
		hold = t
	}
	a.want = limit.Want{Priority: a.wishes.priority, Deadline: d.First, LatestStart: d.KillAt(), GiveUp: hold}
	a.onGive = outcome.ShedDeadlineExpired
	if t := d.Arrival.Add(a.wishes.maxQueue); a.wishes.hasQueue && t.Before(a.want.GiveUp) {
		a.want.GiveUp, a.onGive = t, outcome.ShedQueueFull
	}
	a.base.GiveUp, a.base.HoldUntil = a.want.GiveUp, hold
}

// walk offers the request to the tiers from rung on, until one answers, admits or parks it. It never goes back up.
func (a *Admission) walk(now time.Time, rung int) {
	for ; rung <= a.last; rung++ {
		if a.unknown[rung] {
			continue
		}
		if !a.enter(rung) {
			return
		}
		if v, r, ok := a.withoutCompute(now, rung, a.reason()); ok {
			a.answer(now, v, r)
			return
		}
		if a.limiter(rung) != nil && a.offer(now, rung) {
			return
		}
	}
	a.mu.Lock()
	reason, tier := a.first, a.firstTier
	a.mu.Unlock()
	a.shed(now, reason, tier)
}

// offer asks the limiter of a model tier; false: it refused.
func (a *Admission) offer(now time.Time, rung int) bool {
	want, onGive := a.patience(now, rung)
	d, h := a.limiter(rung).Offer(now, want, func(g limit.Grant) { a.granted(rung, onGive, g) })
	switch d.Kind {
	case limit.Admitted:
		a.settle(now, a.admitted(now, rung, d.Ticket, 0))
		return true
	case limit.Parked:
		a.park(now, rung, h, want.GiveUp)
		return true
	}
	a.busy(now, rung, d.Reason)
	a.refused(rung, d.Reason)
	return false
}

// patience is what is asked of a rung's limiter, given when the next rung is rather taken, and what giving up there means.
func (a *Admission) patience(now time.Time, rung int) (limit.Want, outcome.Shed) {
	want, onGive := a.want, a.onGive
	next, rule, ok := a.nextRule(rung)
	if !ok {
		return want, onGive
	}
	forecast := a.limiter(rung).Forecast(want)
	if a.route.dwells[next].pass(now, forecast, rule) {
		want.GiveUp, onGive = now, outcome.ShedQueueFull // a slot at once, or the next rung
		return want, onGive
	}
	if t := a.due.Arrival.Add(rule.WaitOver); t.Before(want.GiveUp) {
		want.GiveUp, onGive = t, outcome.ShedQueueFull
	}
	return want, onGive
}

// busy notes that the rung below is entered because this one was busy.
func (a *Admission) busy(now time.Time, rung int, why outcome.Shed) {
	if why.Rung() != outcome.DegradedQueuePressure {
		return
	}
	if next, rule, ok := a.nextRule(rung); ok {
		a.route.dwells[next].enter(now, rule)
	}
}

// nextRule is the next accepted rung, if it says when it is to be taken.
func (a *Admission) nextRule(rung int) (int, degrade.Rule, bool) {
	for next := rung + 1; next <= a.last; next++ {
		if a.unknown[next] {
			continue
		}
		r := a.route.Ladder[next]
		return next, degrade.Rule{WaitOver: r.WaitOver, Dwell: a.route.Dwell}, r.HasWaitOver
	}
	return 0, degrade.Rule{}, false
}

// granted continues where the request was parked.
func (a *Admission) granted(rung int, onGive outcome.Shed, g limit.Grant) {
	if g.Kind == limit.Admitted {
		a.settle(g.At, a.admitted(g.At, rung, g.Ticket, g.Waited))
		return
	}
	reason := g.Reason
	if g.Kind == limit.GaveUp {
		reason = onGive
	}
	a.waited(rung, g.Waited)
	a.busy(g.At, rung, reason)
	a.refused(rung, reason)
	a.walk(g.At, rung+1)
}

func (a *Admission) limiter(rung int) *limit.Limiter { return a.c.limiters[a.route.Ladder[rung].Tier] }

func (a *Admission) tier(rung int) string { return a.c.policy.Tiers[a.route.Ladder[rung].Tier].Name }

// enter moves down to rung; false when the request has been abandoned meanwhile.
func (a *Admission) enter(rung int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rung, a.handle = rung, limit.Handle{}
	return !a.abandoned
}

// park notes where the request waits, unless a grant has already moved it on. A request abandoned between the offer
// and here leaves the queue again.
func (a *Admission) park(now time.Time, rung int, h limit.Handle, until time.Time) {
	a.mu.Lock()
	gone := a.abandoned
	if a.rung == rung {
		a.handle = h
	}
	a.mu.Unlock()
	if gone {
		a.limiter(rung).Abandon(h)
		return
	}
	a.wait(now, until)
}

// wait says that a verdict follows, and when the engine wants its Tick.
func (a *Admission) wait(now, until time.Time) {
	a.mu.Lock()
	v := a.base
	a.mu.Unlock()
	v.Kind, v.WakeAt = Parked, until
	a.settle(now, v)
}

// refused keeps the first reason, save that an end of brownout itself is said as such.
func (a *Admission) refused(rung int, reason outcome.Shed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == outcome.ShedNone || (reason == outcome.ShedShuttingDown && a.first != reason) {
		a.first, a.firstTier = reason, a.tier(rung)
	}
}

// reason is why a lower tier than those tried so far answers.
func (a *Admission) reason() outcome.Degraded {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first.Rung()
}

func (a *Admission) waited(rung int, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.base.Waits = append(a.base.Waits, Wait{a.tier(rung), d})
}

func (a *Admission) admitted(now time.Time, rung int, t *limit.Ticket, waited time.Duration) Verdict {
	a.waited(rung, waited)
	rewrite := a.rewrite(rung)
	retry := a.mayRetry(now, rung)
	a.drop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = rung
	v := a.base
	v.Kind, v.Tier, v.Ticket, v.Stream = Admitted, a.tier(rung), t, a.route.Stream
	if rung > a.route.top {
		v.Reason = a.first.Rung()
	}
	v.ShedStatus = shedStatus(a.route.Route, outcome.ShedDeadlineExpired)
	v.Rewrite, v.Retry, v.ReplaceEmpty = rewrite, retry, a.route.ReplaceEmpty
	v.Fallback = a.canFallBack(rung)
	if a.keyed || a.claims {
		v.Keep = maxKept
	}
	return v
}

// canFallBack says whether some accepted rung below may answer without compute: with its text, or with what is kept.
func (a *Admission) canFallBack(rung int) bool {
	for below := rung + 1; below <= a.last && below <= a.route.lastWithoutCompute; below++ {
		if a.keyed || a.c.policy.Tiers[a.route.Ladder[below].Tier].Template != nil {
			return true
		}
	}
	return false
}
