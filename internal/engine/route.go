package engine

import (
	"sync"
	"time"

	"github.com/envoy-brownout/brownout/internal/degrade"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/policy"
)

// route is a route of a snapshot with what follows from its ladder. Immutable but for the dwells.
type route struct {
	*policy.Route
	top                int // the first rung that computes: its answers are not degraded
	lastWithoutCompute int // the lowest rung that needs no compute, -1: none
	rewrites           bool
	template           bool
	keepFor            time.Duration // how long answers are kept: fresh, and then stale as long as any rung takes them
	dwells             []*dwell      // by rung
	pinned             *dialect.ID   // the dialect the policy says
}

// dwell is the state of a rung, shared by all requests of a route and kept over reloads.
type dwell struct {
	mu sync.Mutex // guards d
	d  degrade.Dwell
}

func (d *dwell) pass(now time.Time, forecast time.Duration, r degrade.Rule) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.d.Pass(now, forecast, r)
}

func (d *dwell) enter(now time.Time, r degrade.Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.d.Enter(now, r)
}

// dwellKey names a rung over reloads.
type dwellKey struct{ route, tier string }

// compileRouteLocked works out what follows from a ladder.
func (e *Engine) compileRouteLocked(s *policy.Snapshot, rt *policy.Route) *route {
	r := &route{Route: rt, top: -1, lastWithoutCompute: -1}
	if id, ok := dialect.ByName(rt.Stream.Dialect); ok && rt.Stream.Watch {
		r.pinned = &id
	}
	var stale time.Duration
	for i, rung := range rt.Ladder {
		t := s.Tiers[rung.Tier]
		switch {
		case t.Model != nil:
			if r.top < 0 {
				r.top = i
			}
			r.rewrites = r.rewrites || t.Model.Rewrite.Model != ""
			if rt.Cache != nil {
				r.lastWithoutCompute = i // its kept answers
			}
		case t.Cache != nil:
			r.lastWithoutCompute, stale = i, max(stale, t.Cache.StaleFor)
		default:
			r.lastWithoutCompute, r.template = i, true
		}
		k := dwellKey{rt.Name, t.Name}
		if e.dwells[k] == nil {
			e.dwells[k] = &dwell{}
		}
		r.dwells = append(r.dwells, e.dwells[k])
	}
	if rt.Cache != nil {
		r.keepFor = rt.Cache.TTL + stale
	}
	return r
}

// needsBody says whether the route cannot decide on the headers of a request of that dialect: its keys, its model or
// whether it asks for a stream are in the body.
func (r *route) needsBody(id dialect.ID) bool { return r.bodyNeeds(id) != 0 }

// bodyNeeds are reasons to read a request's body.
type bodyNeeds uint8

const (
	needCache       bodyNeeds = 1 << iota // it is part of the cache key
	needIdempotency                       // it is what an idempotency key stands for
	needModel                             // it names the model, which a tier replaces
	needTemplate                          // it says whether a template answers with a stream
)

func (r *route) bodyNeeds(id dialect.ID) (n bodyNeeds) {
	if r.Cache != nil {
		n |= needCache
	}
	if r.Idempotency != nil {
		n |= needIdempotency
	}
	if id == dialect.Gemini { // the rest is in the path
		return n
	}
	if r.rewrites {
		n |= needModel
	}
	if r.template && id != dialect.Generic {
		n |= needTemplate
	}
	return n
}

// rungs reads the dwells of the rungs that have a wait_over.
func (r *route) rungs(s *policy.Snapshot) []RungState {
	var list []RungState
	for i, rung := range r.Ladder {
		if !rung.HasWaitOver {
			continue
		}
		d := r.dwells[i]
		d.mu.Lock()
		list = append(list, RungState{Route: r.Name, Tier: s.Tiers[rung.Tier].Name, Low: d.d.Low(), Entries: d.d.Entries()})
		d.mu.Unlock()
	}
	return list
}
