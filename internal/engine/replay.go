package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// result is what those who follow a request get.
type result struct {
	entry    *replay.Entry    // the whole answer
	why      outcome.Degraded // …which stands in for a better one; none: it does not
	shed     outcome.Shed     // refused
	tier     string           // …by
	conflict bool             // an error of the caller's, or the key is somebody else's
	failed   outcome.Degraded // the answer failed: a tier that needs no compute, else
	reply    *outcome.Reply   // …this
	outcome  outcome.Outcome
}

// seats are the places of a request among those who ask the same: under its idempotency key, and under its cache key.
type seats struct {
	claim, cache *replay.Seat[*result]
	following    *replay.Seat[*result] // one of them, while its landing is waited for
	held         replay.Claim
	holds        bool // held is ours to settle or release
}

// joinClaim joins those in this process who ask under the same idempotency key with the same payload.
func (a *Admission) joinClaim(now time.Time) {
	k := a.idem.Tier(string(a.print[:])) // another payload is another flight, and the store tells it off
	seat := a.e.flights.Join(k, func(l replay.Landing[*result]) { a.claimLanded(l) })
	switch {
	case !a.sit(seat, func(s *seats) { s.claim = seat }):
		return
	case seat.Led():
		a.tries = claimTries
		a.takeClaim(now)
		return
	}
	a.e.note("joined")
	a.follow(now, seat, a.due.KillAt(), func(now time.Time) { a.refuseAs(now, a.conflict()) })
}

// sit notes the seat that was taken. A request that is over meanwhile gives it up: whoever leads a flight and is not there
// any more would be followed for ever; false.
func (a *Admission) sit(seat *replay.Seat[*result], note func(*seats)) bool {
	a.mu.Lock()
	over := a.abandoned || a.ended
	if !over {
		note(&a.seats)
	}
	a.mu.Unlock()
	if over && !seat.Leave() {
		seat.Abort()
	}
	return !over
}

// over says whether nobody waits for a verdict any more.
func (a *Admission) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.abandoned || a.ended
}

// claimLanded gives a follower of an idempotency key what its leader got. It never runs while another does.
func (a *Admission) claimLanded(l replay.Landing[*result]) {
	if !a.landing(l, func(s *seats) { s.claim = l.Seat }) {
		return
	}
	now := a.e.now()
	switch l.Kind {
	case replay.Promoted:
		a.tries = 3 * claimTries
		a.takeClaim(now)
	case replay.Dissolved:
		a.refuseAs(now, a.conflict())
	default:
		a.land(now, l.Value, func() { a.refuseAs(now, a.conflict()) })
	}
}

// takeClaim asks the store for the key.
func (a *Admission) takeClaim(now time.Time) {
	a.e.store.Claim(now, a.idem, a.print, func(c replay.Claim, err error) {
		defer a.recovered()
		now := a.e.now()
		switch {
		case a.over() && c.State != replay.Taken:
		case err != nil: // nor is it asked for kept answers: it has had its time
			a.e.note("store_failed")
			if a.keyed && !a.bypass {
				a.joinCache(now)
			} else {
				a.walk(now, 0)
			}
		case c.State == replay.Done:
			a.answer(now, a.replayed(now, c.Entry, c.Entry.Reason), &result{entry: c.Entry, why: c.Entry.Reason})
		case c.State == replay.Busy && a.tries > 0: // its owner may have ended, and the store not have heard yet
			a.tries--
			a.again(now)
		case c.State == replay.Busy:
			a.refuseAs(now, a.conflict())
		case c.State == replay.Mismatch:
			a.refuseAs(now, a.mismatch())
		default:
			if a.keepClaim(now, c) {
				a.proceed(now)
			}
		}
	})
}

// How often, and after what pause, a key is asked for again that is said to be held: an answer of this process may be on
// its way to the store. Whoever was promoted knows that its leader has just given the key up, and asks longer.
const (
	claimTries = 3
	claimPause = 20 * time.Millisecond
)

// again asks for the key once more after a pause.
func (a *Admission) again(now time.Time) {
	at := now.Add(claimPause)
	a.e.clock.add(at, func(now time.Time) {
		if !a.over() {
			a.takeClaim(now)
		}
	})
	a.wait(now, at)
}

// recovered, deferred, keeps a failure in what follows an answer of the store from the store, on whose goroutine it may run.
// The request is refused, and the failure complained about.
func (a *Admission) recovered() {
	if p := recover(); p != nil {
		a.e.complain("decision failed, the request is refused", p)
		a.shed(a.e.now(), outcome.ShedQueueFull, "")
	}
}

// keepClaim notes the claim; that of a request that is over goes back, false.
func (a *Admission) keepClaim(now time.Time, c replay.Claim) bool {
	a.mu.Lock()
	gone := a.ended || a.abandoned
	if !gone {
		a.seats.held, a.seats.holds = c, true
	}
	a.mu.Unlock()
	if gone {
		a.e.store.Release(now, c)
	}
	return !gone
}

func (a *Admission) proceed(now time.Time) {
	if a.keyed && !a.bypass {
		a.lookup(now)
		return
	}
	a.walk(now, 0)
}

// lookup reads what the store has for every accepted tier that computes. A fresh answer of the best is given at once.
func (a *Admission) lookup(now time.Time) {
	low := max(a.last, a.route.top) // an answer of the best tier is as good as anything the caller accepts
	keys := make([]replay.Key, 0, low+1)
	rungs := make([]int, 0, low+1)
	for rung := range a.route.Ladder[:low+1] {
		if a.limiter(rung) != nil {
			keys, rungs = append(keys, a.cache.Tier(a.tier(rung))), append(rungs, rung)
		}
	}
	a.e.store.Lookup(now, keys, func(found []*replay.Entry, err error) {
		defer a.recovered()
		now := a.e.now()
		if a.over() {
			return
		}
		if err != nil {
			a.e.note("store_failed")
		}
		a.entries = make([]*replay.Entry, low+1)
		for i, e := range found {
			a.entries[rungs[i]] = e
		}
		if e := a.entries[a.route.top]; e != nil && e.Fresh(now) {
			a.answer(now, a.replayed(now, e, outcome.DegradedNone), &result{entry: e})
			return
		}
		a.e.note("miss")
		a.joinCache(now)
	})
}

// joinCache joins those in this process who ask the same.
func (a *Admission) joinCache(now time.Time) {
	seat := a.e.flights.Join(a.cache, func(l replay.Landing[*result]) { a.cacheLanded(l) })
	switch {
	case !a.sit(seat, func(s *seats) { s.cache = seat }):
		return
	case seat.Led():
		a.walk(now, 0)
		return
	}
	a.e.note("joined")
	a.follow(now, seat, a.latestStart(), func(now time.Time) { a.walk(now, 0) })
}

// cacheLanded gives a follower what its leader got, if it accepts it.
func (a *Admission) cacheLanded(l replay.Landing[*result]) {
	if !a.landing(l, func(s *seats) { s.cache = l.Seat }) {
		return
	}
	now := a.e.now()
	switch l.Kind {
	case replay.Promoted, replay.Dissolved:
		a.walk(now, 0)
	default:
		a.land(now, l.Value, func() { a.walk(now, 0) })
	}
}

// land settles a follower with its leader's result; alone is what it does where that is no use to it.
func (a *Admission) land(now time.Time, r *result, alone func()) {
	switch {
	case r == nil || (r.conflict && r.reply == nil):
		alone()
	case r.conflict:
		a.answer(now, Verdict{Reply: *r.reply, Outcome: outcome.BadRequest}, r)
	case r.entry != nil && a.accepts(r.entry.Tier, r.why):
		a.answer(now, a.replayed(now, r.entry, r.why), r)
	case r.entry != nil:
		alone()
	case r.shed != outcome.ShedNone:
		a.shed(now, r.shed, r.tier)
	default:
		a.landFailed(now, r, alone)
	}
}

// landFailed gives the followers of a failed answer what needs no compute, else the same error.
func (a *Admission) landFailed(now time.Time, r *result, alone func()) {
	for rung := 0; rung <= a.last && r.failed != outcome.DegradedNone; rung++ {
		if v, again, ok := a.withoutCompute(now, rung, r.failed); ok {
			a.answer(now, v, again)
			return
		}
	}
	if r.reply == nil {
		alone()
		return
	}
	a.answer(now, Verdict{Reply: *r.reply, Outcome: r.outcome}, r)
}

// accepts says whether the caller accepts answers of tier that stand in for a better one for why; none: they do not.
func (a *Admission) accepts(tier string, why outcome.Degraded) bool {
	if tier == a.tier(a.route.top) && why == outcome.DegradedNone {
		return true
	}
	if a.never() {
		return false
	}
	for rung := range a.route.Ladder[:a.last+1] {
		t := a.c.policy.Tiers[a.route.Ladder[rung].Tier]
		if why == outcome.DegradedStale && t.Cache != nil || why != outcome.DegradedStale && t.Name == tier {
			return true
		}
	}
	return false
}

// latestStart is when a follower stops following and runs by itself: while there is still time to be served, as far as the
// best tier's samples tell; without any, after half of its time.
func (a *Admission) latestStart() time.Time {
	kill := a.due.KillAt()
	s := a.limiter(a.route.top).Samples()
	time := kill.Sub(a.due.Arrival)
	switch {
	case a.facts.Stream && !a.due.CoversWhole() && s.FirstCount > 0:
		return kill.Add(-max(2*s.First, time/10))
	case s.ServiceCount > 0 && !a.facts.Stream:
		return kill.Add(-max(2*s.Service, time/10))
	}
	return a.due.Arrival.Add(time / 2)
}

// follow waits for the landing of seat, until the time is up.
func (a *Admission) follow(now time.Time, seat *replay.Seat[*result], until time.Time, late func(now time.Time)) {
	a.mu.Lock()
	a.seats.following = seat
	hold := a.base.HoldUntil
	a.mu.Unlock()
	if until.After(hold) { // Envoy waits no longer
		until = hold
	}
	if !now.Before(until) {
		a.leave(now, seat, late)
		return
	}
	ring := a.e.clock.add(until, func(now time.Time) { a.leave(now, seat, late) })
	a.mu.Lock()
	a.ring = ring
	a.mu.Unlock()
	a.wait(now, until)
}

// leave ends the following of seat, unless a landing is on its way.
func (a *Admission) leave(now time.Time, seat *replay.Seat[*result], late func(now time.Time)) {
	a.mu.Lock()
	follows := a.seats.following == seat
	a.mu.Unlock()
	if follows && seat.Leave() && a.unfollow() {
		late(now)
	}
}

// landing ends the wait for l. Whoever is promoted leads from now on, and one whose request is over passes the lead on;
// false.
func (a *Admission) landing(l replay.Landing[*result], lead func(*seats)) bool {
	if a.unfollow() {
		a.mu.Lock()
		if l.Kind == replay.Promoted {
			lead(&a.seats)
		}
		a.mu.Unlock()
		return true
	}
	if l.Kind == replay.Promoted {
		l.Seat.Abort()
	}
	return false
}

// unfollow notes that the wait for a landing is over. False: the request is.
func (a *Admission) unfollow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seats.following = nil
	a.e.clock.silence(a.ring)
	return !a.abandoned && !a.ended
}
