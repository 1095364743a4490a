package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// manyPolicy has room for every stream of the test.
const manyPolicy = `version: 1
budget: {default: 20s, max: 60s}
tiers:
  full: {model: {concurrency: 600, queue: 600}}
routes:
- name: all
  match: {path: {prefix: /}}
  ladder: [full]
  stream: {idle: 4s}
`

// TestFiveHundredStreams runs 500 streams of 200 frames at once, of which one in twenty each is cut by its upstream, falls
// silent, or is left by its client: every one ends as it should, is counted as that, and leaves nothing behind.
func TestFiveHundredStreams(t *testing.T) {
	const streams, frames = 500, 200
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: manyPolicy, scheme: envoy.SchemeH2C, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
	body := make([]string, frames)
	for i := range body {
		body[i] = CH(fmt.Sprint("word", i))
	}
	half := body[:frames/2]
	u.add("whole", script{chunks: append(body[:frames:frames], FIN("stop"), DONE), gap: 4 * time.Millisecond})
	u.add("short", script{chunks: []string{CH("a"), FIN("stop"), DONE}, gap: 200 * time.Millisecond})
	u.add("cut", script{chunks: half, gap: 4 * time.Millisecond, end: cut})
	u.add("stalled", script{chunks: half, gap: 4 * time.Millisecond, end: hang})
	clients := make([]*http.Client, 25)
	for i := range clients {
		clients[i] = newClient(t, true)
		clients[i].Timeout = time.Minute
	}
	for range 3 { // until the upstream has told every connection how many streams it takes, it refuses what is too many
		warmUp(t, s, clients, len(clients))
	}
	warmUp(t, s, clients, streams) // connections stay, and each has its goroutines
	before, counted := s.metric("go_goroutines"), s.metric("brownout_requests_total")
	kinds := map[int]string{0: "cut", 1: "stalled", 2: "aborted"}
	var wg sync.WaitGroup
	var held int
	for i := range streams {
		kind, ok := kinds[i%20]
		if !ok {
			kind = "whole"
		}
		wg.Go(func() { oneOfMany(t, s, clients[i%len(clients)], kind, half) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			held = max(held, s.metric("brownout_held_bytes"))
		}
	}
	if limit := streams * len(body[frames-1]); held > limit {
		t.Errorf("%d bytes were held back at once, want less than a frame per stream (%d)", held, limit)
	}
	each := streams / 20
	testkit.Eventually(t, 10*time.Second, func() bool { return s.metric("brownout_requests_total") == counted+streams }, "requests without an outcome")
	for outcome, want := range map[string]int{"ok": counted + streams - 3*each, "truncated": each, "stalled": each, "client_aborted": each} {
		if n := s.metric("brownout_requests_total", "outcome", outcome); n != want {
			t.Errorf("%d streams ended as %s, want %d", n, outcome, want)
		}
	}
	if n := s.metric("brownout_cuts_total", "sealed", "true"); n != each {
		t.Errorf("%d cuts counted, want %d", n, each)
	}
	s.books()
	for _, c := range clients {
		c.CloseIdleConnections()
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return s.metric("go_goroutines") <= before+10 }, "goroutines are left over")
	t.Logf("%d streams of %d frames: at most %d bytes held at once; goroutines %d before, %d after", streams, frames, held, before, s.metric("go_goroutines"))
}

// warmUp runs as many short streams at once, so that every connection there will be is open.
func warmUp(t *testing.T, s *stack, clients []*http.Client, n int) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if a := s.send(t.Context(), clients[i%len(clients)], chatURL, "x-script", "short"); a.status != 200 || a.err != nil {
				t.Errorf("warming up: %v", a)
			}
		})
	}
	wg.Wait()
}

// oneOfMany runs one stream and checks what its client sees.
func oneOfMany(t *testing.T, s *stack, c *http.Client, kind string, half []string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	name := kind
	if kind == "aborted" {
		name = "whole"
		timer := time.AfterFunc(300*time.Millisecond, cancel)
		defer timer.Stop()
	}
	a := s.send(ctx, c, chatURL, "x-script", name)
	want := ""
	switch kind {
	case "whole":
		want = DONE
	case "cut":
		want = strings.Join(half, "") + P("upstream_truncated")
	case "stalled":
		want = strings.Join(half, "") + P("stalled")
	case "aborted":
		if a.err == nil {
			t.Errorf("the aborted stream: %v", a)
		}
		return
	}
	if a.status != 200 || a.err != nil || !strings.HasSuffix(a.body, want) {
		t.Errorf("%s: %d bytes, %v, ends in %q", kind, len(a.body), a.err, a.body[max(0, len(a.body)-80):])
	}
}
