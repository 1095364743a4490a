package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/limit"
)

// maxDumpedWaiters bounds the waiting requests a dump lists per tier.
const maxDumpedWaiters = 100

// State is what the engine holds at one instant, for people and tests.
type State struct {
	PolicyHash string
	Tiers      []TierState // those that compute, in the order of the policy, then tiers the policy no longer has
	Rungs      []RungState // those with a wait_over
}

// RungState is a rung that is entered when the tier above it is busy.
type RungState struct {
	Route, Tier string
	Low         bool // requests that find no free slot above go there without waiting
	Entries     int  // how often that began
}

// TierState is one tier's limiter.
type TierState struct {
	Tier     string
	InPolicy bool
	limit.Stats
	Waiters []limit.Waiter // the next to run, at most 100
	Samples limit.Samples  // how long its latest requests took
}

// Dump reads the state. withWaiters adds the waiting requests, which costs a sort of each queue.
func (e *Engine) Dump(now time.Time, withWaiters bool) State {
	c := e.current.Load()
	st := State{PolicyHash: c.policy.Hash}
	seen := make(map[string]bool, len(c.limiters))
	add := func(name string, l *limit.Limiter, inPolicy bool) {
		t := TierState{Tier: name, InPolicy: inPolicy, Stats: l.Stats(), Samples: l.Samples()}
		if withWaiters {
			t.Waiters = l.Waiters(now, maxDumpedWaiters)
		}
		seen[name] = true
		st.Tiers = append(st.Tiers, t)
	}
	for i := range c.policy.Routes {
		st.Rungs = append(st.Rungs, c.routes[&c.policy.Routes[i]].rungs(c.policy)...)
	}
	for i, t := range c.policy.Tiers {
		if t.Model != nil {
			add(t.Name, c.limiters[i], true)
		}
	}
	e.mu.Lock()
	retired := make(map[string]*limit.Limiter)
	for name, l := range e.limiters {
		if !seen[name] {
			retired[name] = l
		}
	}
	e.mu.Unlock()
	for name, l := range retired {
		if s := l.Stats(); s.Used > 0 || s.Waiting > 0 {
			add(name, l, false)
		}
	}
	return st
}

// ResetMax starts every tier's maxima afresh.
func (e *Engine) ResetMax() {
	for _, l := range e.all() {
		l.ResetMax()
	}
}
