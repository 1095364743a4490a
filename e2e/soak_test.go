package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
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

// tenMinutes is how long the long stream runs.
func tenMinutes() time.Duration {
	if os.Getenv("BROWNOUT_SOAK") != "" {
		return 10 * time.Minute
	}
	return 4 * time.Second
}

const longPolicy = `version: 1
tiers:
  full: {model: {concurrency: 2, queue: 0}}
routes:
- {name: unsealed, match: {path: {prefix: /unsealed/}}, ladder: [full], stream: {seal: false}}
- {name: sealed, match: {path: {prefix: /sealed/}}, ladder: [full]}
`

// TestSoakTenMinuteStream runs one stream over the seal and one beside it, with the default timers, for ten minutes, or
// in short for some seconds. Nobody takes their slots meanwhile: brownout's gauge, its debug page and the upstream agree
// at every look, and whoever else comes is refused. At the end every byte has arrived and both are complete.
func TestSoakTenMinuteStream(t *testing.T) {
	s := startStack(t, stackOptions{policy: longPolicy})
	c := newClient(t, true)
	want := s.send(t.Context(), c, "/sealed"+chatPath, "x-stub-mode", "stream", "x-stub-chunks", "200", "x-stub-gap", "0s")
	if want.status != 200 || !strings.HasSuffix(want.body, DONE) {
		t.Fatalf("the stream at once: %v", want)
	}
	s.waitInflight("full", 0, 0)
	c.Timeout = 0 // ten seconds
	gap := fmt.Sprint(tenMinutes() / 200)
	done := make(chan answer, 2)
	for _, path := range []string{"/sealed", "/unsealed"} {
		go func() {
			done <- s.send(t.Context(), c, path+chatPath, "x-stub-mode", "stream", "x-stub-chunks", "200", "x-stub-gap", gap)
		}()
	}
	s.waitInflight("full", 2, 0)
	looks, left := 0, 2
	for left > 0 {
		select {
		case a := <-done:
			if a.status != 200 || a.err != nil || a.body != want.body || a.took < tenMinutes()*9/10 {
				t.Errorf("%d of %d bytes after %s: %v", len(a.body), len(want.body), a.took, a)
			}
			left--
		case <-time.After(tenMinutes() / 100):
			if held := [3]int{s.metric("brownout_inflight"), s.debugInflight(), s.stub.Stats().Inflight}; left == 2 && held != [3]int{2, 2, 2} && !soonOver(done) {
				t.Errorf("look %d: brownout counts %d slots, its debug page %d, the upstream %d calls; want 2", looks, held[0], held[1], held[2])
			}
			if a := s.send(t.Context(), c, "/sealed"+chatPath); left == 2 && a.reason() != "queue_full" && !soonOver(done) {
				t.Errorf("look %d: a third request got a slot: %v", looks, a)
			}
			looks++
		}
	}
	t.Logf("two streams of %s, %d looks at their slots", tenMinutes(), looks)
	if looks < 50 {
		t.Errorf("only %d looks", looks)
	}
	if ok, other := s.metric("brownout_requests_total", "outcome", "ok"), s.metric("brownout_terminal_frames_total"); ok < 3 || other != 0 {
		t.Errorf("%d ended well, %d got an ending of ours; want 3 and none", ok, other)
	}
	s.checkBooks()
}

// soonOver waits a moment for a stream's end: the last look may come when the upstream is through and its caller is not.
func soonOver(done <-chan answer) bool {
	for range 100 {
		if len(done) > 0 {
			return true
		}
		<-time.NewTimer(10 * time.Millisecond).C
	}
	return false
}

// debugInflight is the number of slots in use by the debug page.
func (s *stack) debugInflight() int {
	s.t.Helper()
	resp, err := http.Get(s.adminURL + "/debug/state")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct {
		Tiers []struct {
			InFlight *int `json:"in_flight"`
		} `json:"tiers"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil || len(state.Tiers) != 1 || state.Tiers[0].InFlight == nil {
		s.t.Fatalf("%+v, %v", state, err)
	}
	return *state.Tiers[0].InFlight
}
