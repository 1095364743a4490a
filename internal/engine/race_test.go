package engine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/policy"
)

// TestHammer offers, abandons, ends, ticks and reloads at once; at the end every request has one verdict, unless it
// was abandoned, and no slot is held.
func TestHammer(t *testing.T) {
	policies := []*policy.Snapshot{compile(t, twoTiers), compile(t, `
version: 1
tiers:
  small: {model: {concurrency: 3, queue: 4}}
  full:  {model: {concurrency: 2, queue: 9}}
routes: [{name: chat, match: {path: {prefix: /v1}}, ladder: [full, small]}]
`)}
	e := New(time.Now(), policies[0], Options{})
	var twice, missing atomic.Int64
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 1500 {
				hammerOne(e, &twice, &missing, g, i)
				if g == 0 && i%20 == 0 {
					e.Apply(time.Now(), policies[i/20%2])
				}
				e.Tick(time.Now())
			}
		})
	}
	wg.Wait()
	for wake, ok := e.NextWake(); ok; wake, ok = e.NextWake() {
		e.Tick(wake)
	}
	if twice.Load() != 0 || missing.Load() != 0 {
		t.Errorf("%d requests settled twice, %d abandoned ones kept a slot", twice.Load(), missing.Load())
	}
	for _, tier := range e.Dump(time.Now(), true).Tiers {
		if tier.Used != 0 || tier.Waiting != 0 {
			t.Errorf("left over: %+v", tier)
		}
	}
}

func hammerOne(e *Engine, twice, missing *atomic.Int64, g, i int) {
	var settled atomic.Int64
	end := func(v Verdict) {
		if settled.Add(1) > 1 {
			twice.Add(1)
		}
		if v.Ticket != nil {
			v.Ticket.Done(time.Now())
		}
	}
	budget := []string{"1", "2", "5", "50"}[(g+i)%4]
	v, w := e.Offer(time.Now(), request("x-budget-ms", budget, headerMaxQueue, []string{"0", "1", "100"}[i%3]), end)
	switch {
	case v.Kind != Parked:
		end(v)
	case i%2 == 0:
		w.Abandon()
		if s := settled.Load(); s > 1 {
			missing.Add(1)
		}
	}
}

func BenchmarkOfferAdmitted(b *testing.B) {
	e := New(epoch, compile(b, `
version: 1
tiers: {full: {model: {concurrency: 1000000, queue: 0}}}
routes: [{name: chat, match: {method: POST, path: {prefix: /v1/chat}}, ladder: [full]}]
`), Options{})
	r := request("x-budget-ms", "2500", "x-priority", "high", "content-type", "application/json")
	b.ReportAllocs()
	for b.Loop() {
		v, _ := e.Offer(epoch, r, nil)
		v.Ticket.Done(epoch)
	}
}
