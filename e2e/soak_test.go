package e2e

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// wideOpen has more slots than the soak has clients: most requests go all the way.
const wideOpen = `version: 1
tiers:
  full: {model: {concurrency: 64, queue: 64}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
`

// soakRequests is how many requests the soak sends: enough to see a leak of a goroutine or a kilobyte per request.
func soakRequests() int {
	if os.Getenv("BROWNOUT_SOAK") != "" {
		return 400_000
	}
	return 20_000
}

// TestSoakWithRandomAborts sends requests of which a third are given up at random moments. At the end nothing is in
// flight, no goroutine is left, and memory has not grown over the second half.
func TestSoakWithRandomAborts(t *testing.T) {
	s := startStack(t, stackOptions{policy: wideOpen, stub: stub.Config{Latency: latency(t, "2ms")}})
	clients := make([]*http.Client, 24)
	for i := range clients {
		clients[i] = newClient(t, i%2 == 0)
	}
	total := soakRequests()
	send(s, clients, total/10) // warm up: pools, connections, heap
	before := s.metric("go_goroutines")
	var rss [3]int
	rss[0] = s.settledRSS()
	send(s, clients, total/2)
	rss[1] = s.settledRSS()
	send(s, clients, total/2)
	rss[2] = s.settledRSS()
	for _, c := range clients {
		c.CloseIdleConnections()
	}
	s.checkBooksWithAborts()
	testkit.Eventually(t, 10*time.Second, func() bool { return s.metric("go_goroutines") <= before }, "goroutines are left over")
	t.Logf("%d requests; goroutines %d before, %d after; RSS %d, %d, %d KiB; outcomes %v", total, before, s.metric("go_goroutines"),
		rss[0]>>10, rss[1]>>10, rss[2]>>10, counterCounts(s.scrape()))
	if n := s.metric("brownout_upstream_total"); n < total*2/3 {
		t.Errorf("%d of %d requests reached the upstream, want most", n, total)
	}
	if grown := float64(rss[2]-rss[1]) / float64(rss[1]); grown > 0.05 {
		t.Errorf("memory grew by %.1f %% over the second half", 100*grown)
	}
}

// settledRSS is the resident memory when nothing is in flight.
func (s *stack) settledRSS() int {
	s.waitInflight("full", 0, 0)
	return s.metric("process_resident_memory_bytes")
}

// send sends n requests from all clients; a third of them leave after up to 8 ms.
func send(s *stack, clients []*http.Client, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
				if rand.N(3) == 0 {
					timer := time.AfterFunc(rand.N(8*time.Millisecond), cancel)
					s.send(ctx, c, chatPath)
					timer.Stop()
				} else if a := s.send(ctx, c, chatPath); a.status != 200 && a.reason() != "queue_full" {
					s.t.Errorf("got %v", a)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}
