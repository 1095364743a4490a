package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/stub"
)

// roundsPolicy kills a whole set of running requests at the same instant and admits the next set in the same tick.
const roundsPolicy = `version: 1
tiers:
  full: {model: {concurrency: 64, queue: 1000}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
`

// TestABurstThroughBrownoutNeverTripsTheBreakers runs a thousand requests in rounds in which every slot changes hands
// at once, by an answer, a deadline or an abort: the moment at which Envoy still counts the old requests.
func TestABurstThroughBrownoutNeverTripsTheBreakers(t *testing.T) {
	for name, scheme := range map[string]envoy.Scheme{"HTTP1": envoy.SchemeHTTP, "HTTP2": envoy.SchemeH2C} {
		t.Run(name, func(t *testing.T) {
			s := startStack(t, stackOptions{policy: roundsPolicy, scheme: scheme, stub: stub.Config{Latency: latency(t, "40ms")}})
			var wg sync.WaitGroup
			for i := range 1000 {
				client := newClient(t, i%2 == 0)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if i%3 == 0 { // gives up by itself, queued or running
						ctx, cancel = context.WithTimeout(t.Context(), time.Duration(100+i)*time.Millisecond)
					}
					defer cancel()
					s.send(ctx, client, chatPath, "x-budget-ms", []string{"400", "800", "2500"}[i%3], "x-stub-latency", []string{"30ms", "2s"}[i%2])
				})
			}
			wg.Wait()
			overflows := s.envoy.StatsMatching(`^cluster\.(tier_full|unmatched|brownout)\.(upstream_rq_pending_overflow|upstream_rq_retry_overflow|upstream_cx_overflow)$`)
			if len(overflows) < 9 {
				t.Errorf("Envoy has %v, want three counters of three clusters", overflows)
			}
			for stat, n := range overflows {
				if n != 0 {
					t.Errorf("%s is %d", stat, n)
				}
			}
			if n := s.envoy.Stats("cluster.tier_full.upstream_rq_total"); n < 128 {
				t.Errorf("only %d requests reached the tier: the rounds did not happen", n)
			}
		})
	}
}

// TestWithBrownoutAwayTheBreakersBoundTheTier: 2 × 4 + 16 at the upstream, as many and 8 more waiting in Envoy.
func TestWithBrownoutAwayTheBreakersBoundTheTier(t *testing.T) {
	s := startStack(t, stackOptions{stub: stub.Config{Latency: latency(t, "500ms")}})
	s.brownout.Kill()
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 200 {
		client := newClient(t, false)
		wg.Go(func() {
			a := s.send(t.Context(), client, chatPath)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	wg.Wait()
	if statuses[http.StatusOK] < 24 || statuses[http.StatusServiceUnavailable] == 0 || len(statuses) != 2 {
		t.Errorf("answers by status: %v", statuses)
	}
	if got := s.stub.Stats().InflightMax; got > 28 { // two worker threads may each have one connection more
		t.Errorf("%d requests at the upstream at once", got)
	}
}
