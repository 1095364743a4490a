package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// squarePolicy has a slow tier of 40 requests a second and, in the ladder, a fast one below it.
const squarePolicy = `version: 1
budget: {default: 1s}
tiers:
  full:  {model: {concurrency: 4, queue: 100}}
  small: {model: {concurrency: 16, queue: 32}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: %s
  ladder_dwell: 2s
`

const (
	squareLow, squareHigh = 20, 80 // requests a second
	squareHalf            = 2 * time.Second
	squarePeriods         = 3
)

// squared is what a square wave of load met.
type squared struct {
	sent, good, degraded, shed int
	took                       []time.Duration
	entries                    int
}

// TestASquareWaveOfLoad goes around what the better tier can bear. With the ladder requests above it are answered by the
// small tier, entered at most once per dwell; without it they wait and are shed.
func TestASquareWaveOfLoad(t *testing.T) {
	results := map[string]*squared{}
	var mu sync.Mutex
	t.Run("ways", func(t *testing.T) {
		for name, ladder := range map[string]string{"ladder off": "[full]", "ladder on": "[full, {small: {wait_over: 100ms}}]"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := squareWave(t, fmt.Sprintf(squarePolicy, ladder))
				mu.Lock()
				defer mu.Unlock()
				results[name] = r
			})
		}
	})
	on, off := results["ladder on"], results["ladder off"]
	if on == nil || off == nil {
		t.Fatal("a way has not come to its end")
	}
	for _, name := range []string{"ladder off", "ladder on"} {
		r := results[name]
		t.Logf("%-10s of %d: %3d in time (%.0f %%), %3d degraded (%.0f %%), %3d shed; p50 %v, p95 %v; %d entries", name, r.sent, r.good,
			100*float64(r.good)/float64(r.sent), r.degraded, 100*float64(r.degraded)/float64(r.sent), r.shed,
			percentile(r.took, 50).Round(time.Millisecond), percentile(r.took, 95).Round(time.Millisecond), r.entries)
	}
	if most := int(2*squareHalf*squarePeriods/(2*time.Second)) + 1; on.entries < 1 || on.entries > most {
		t.Errorf("%d entries, want 1 to %d: one per dwell", on.entries, most)
	}
	if on.degraded == 0 || off.degraded != 0 || on.good <= off.good {
		t.Errorf("on %+v, off %+v: the ladder serves no more", on, off)
	}
}

func squareWave(t *testing.T, policy string) *squared {
	s := startStack(t, stackOptions{policy: policy, stub: stub.Config{}})
	c := newClient(t, true)
	r := &squared{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	send := func() {
		a := s.send(t.Context(), c, chatPath, "x-stub-latency", "100ms")
		mu.Lock()
		defer mu.Unlock()
		r.sent++
		switch {
		case a.status == 200 && a.took <= time.Second:
			r.good++
			r.took = append(r.took, a.took)
			if a.header.Get("x-degraded") == "true" {
				r.degraded++
			}
		case a.status == http.StatusServiceUnavailable:
			r.shed++
		}
	}
	for range squarePeriods {
		for _, rate := range []int{squareHigh, squareLow} {
			tick := time.NewTicker(time.Second / time.Duration(rate))
			for range rate * int(squareHalf/time.Second) {
				<-tick.C
				wg.Go(send)
			}
			tick.Stop()
		}
	}
	wg.Wait()
	r.entries = s.entries()
	slices.Sort(r.took)
	s.checkBooks()
	return r
}

// entries is how often the rungs of the ladder were entered.
func (s *stack) entries() int {
	s.t.Helper()
	resp, err := http.Get(s.adminURL + "/debug/state")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct{ Rungs []struct{ Entries int } }
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for _, r := range state.Rungs {
		n += r.Entries
	}
	return n
}
