package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// result is what those who follow a request get.
type result struct {
	entry    *replay.Entry    // the whole answer
	shed     outcome.Shed     // refused
	tier     string           // …by
	conflict bool             // the key is somebody else's: an error of the caller's
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
	a.mu.Lock()
	a.seats.claim = seat
	a.mu.Unlock()
	if seat.Leader() {
		a.takeClaim(now)
		return
	}
	a.e.note("joined")
	a.follow(now, seat, a.due.KillAt(), func(now time.Time) { a.refuseAs(now, a.conflict()) })
}

// claimLanded gives a follower of an idempotency key what its leader got. It never runs while another does.
func (a *Admission) claimLanded(l replay.Landing[*result]) {
	if !a.landing(l, func(s *seats) { s.claim = l.Seat }) {
		return
	}
	now := a.e.now()
	switch l.Kind {
	case replay.Promoted:
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
		now := a.e.now()
		switch {
		case err != nil: // nor is it asked for kept answers: it has had its time
			a.e.note("store_failed")
			if a.keyed && !a.bypass {
				a.joinCache(now)
			} else {
				a.walk(now, 0)
			}
		case c.State == replay.Done:
			a.answer(now, a.replayed(now, c.Entry, c.Entry.Reason), &result{entry: c.Entry})
		case c.State == replay.Busy:
			a.refuseAs(now, a.conflict())
		case c.State == replay.Mismatch:
			a.refuseAs(now, a.mismatch())
		default:
			a.keepClaim(now, c)
			a.proceed(now)
		}
	})
}

// keepClaim notes the claim; that of a request that is over goes back.
func (a *Admission) keepClaim(now time.Time, c replay.Claim) {
	a.mu.Lock()
	gone := a.ended
	if !gone {
		a.seats.held, a.seats.holds = c, true
	}
	a.mu.Unlock()
	if gone {
		a.e.store.Release(now, c)
	}
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
	keys := make([]replay.Key, 0, a.last+1)
	rungs := make([]int, 0, a.last+1)
	for rung := range a.route.Ladder[:a.last+1] {
		if a.limiter(rung) != nil {
			keys, rungs = append(keys, a.cache.Tier(a.tier(rung))), append(rungs, rung)
		}
	}
	a.e.store.Lookup(now, keys, func(found []*replay.Entry, err error) {
		now := a.e.now()
		if err != nil {
			a.e.note("store_failed")
		}
		a.entries = make([]*replay.Entry, a.last+1)
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
	a.mu.Lock()
	a.seats.cache = seat
	a.mu.Unlock()
	if seat.Leader() {
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
	case r == nil || r.conflict:
		alone()
	case r.entry != nil && a.accepts(r.entry.Tier):
		a.answer(now, a.replayed(now, r.entry, a.asGiven(r.entry)), r)
	case r.entry != nil:
		alone()
	case r.shed != outcome.ShedNone:
		a.shed(now, r.shed, r.tier)
	default:
		a.landFailed(now, r, alone)
	}
}

// asGiven is the reason under which the answer was given to the one it was made for.
func (a *Admission) asGiven(e *replay.Entry) outcome.Degraded {
	if e.Tier == a.tier(a.route.top) {
		return outcome.DegradedNone
	}
	return e.Reason
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

// accepts says whether the caller accepts answers of tier.
func (a *Admission) accepts(tier string) bool {
	for rung := range a.route.Ladder[:a.last+1] {
		if a.tier(rung) == tier {
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
	switch {
	case a.facts.Stream && !a.due.CoversWhole() && s.FirstCount > 0:
		return kill.Add(-2 * s.First)
	case s.ServiceCount > 0 && !a.facts.Stream:
		return kill.Add(-2 * s.Service)
	}
	return a.due.Arrival.Add(kill.Sub(a.due.Arrival) / 2)
}

// follow waits for the landing of seat, until the time is up.
func (a *Admission) follow(now time.Time, seat *replay.Seat[*result], until time.Time, late func(now time.Time)) {
	a.mu.Lock()
	a.seats.following = seat
	v := a.base
	a.mu.Unlock()
	if until.After(a.hold) { // Envoy waits no longer
		until = a.hold
	}
	if !now.Before(until) {
		a.leave(now, seat, late)
		return
	}
	ring := a.e.clock.add(until, func(now time.Time) { a.leave(now, seat, late) })
	a.mu.Lock()
	a.ring = ring
	a.mu.Unlock()
	v.Kind, v.WakeAt = Parked, until
	a.settle(now, v)
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
