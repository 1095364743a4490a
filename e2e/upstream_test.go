package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

func TestUpstreamFailuresAreTheUpstreams(t *testing.T) {
	onEveryWire(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		for _, m := range []struct {
			mode       string
			status     int
			outcome    string
			retryAfter string
		}{{"throttle", 429, "throttled", "2"}, {"error", 500, "upstream_error", ""}, {"evict", 503, "evicted", ""}, {"empty", 200, "empty", ""}, {"refuse", 200, "refusal", ""}} {
			a := s.send(t.Context(), c, chatPath, "x-stub-mode", m.mode)
			if a.status != m.status {
				t.Errorf("%s: %v, want %d", m.mode, a, m.status)
			}
			checkHeader(t, a, "x-brownout-source", "upstream")
			checkHeader(t, a, "x-tier", "full")
			checkHeader(t, a, "retry-after", m.retryAfter)
			s.waitInflight("full", 0, 0)
			if n := s.metric("brownout_upstream_total", "tier", "full", "outcome", m.outcome); n != 1 {
				t.Errorf("%s: brownout_upstream_total{outcome=%q} is %d, want 1", m.mode, m.outcome, n)
			}
		}
	})
}

func TestAnUnreachableUpstreamIsEnvoysWord(t *testing.T) {
	onEveryWire(t, stackOptions{noUpstream: true}, func(t *testing.T, s *stack, c *http.Client) {
		for range 6 { // more than there are slots: each must come back
			a := s.send(t.Context(), c, chatPath)
			if a.status != 503 || a.reason() != "" {
				t.Errorf("got %v, want Envoy's own 503", a)
			}
			checkHeader(t, a, "x-brownout-source", "envoy")
			checkHeader(t, a, "x-tier", "")
			checkHeader(t, a, "x-degraded", "false")
		}
		s.waitInflight("full", 0, 0)
		if n := s.metric("brownout_upstream_total", "outcome", "upstream_error"); n != 6 {
			t.Errorf("%d upstream errors counted, want 6", n)
		}
	})
}

// TestACutStreamEndsAsTheSeedSays and leaves no slot held: with the default policy, for the seed's own upstream.
func TestACutStreamEndsAsTheSeedSays(t *testing.T) {
	onEveryWire(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		for range 6 { // more than there are slots
			a := s.send(t.Context(), c, chatPath, "x-stub-mode", "truncate")
			if a.status != 200 || a.err != nil || a.body != partial+seedFrame("upstream_truncated") {
				t.Errorf("got %v, want half a stream and the seed's frame", a)
			}
		}
		s.waitInflight("full", 0, 0)
		if n := s.metric("brownout_cuts_total", "sealed", "true"); n != 6 {
			t.Errorf("%d cuts counted, want 6", n)
		}
	})
}

func TestASlotIsHeldToTheEndOfTheStream(t *testing.T) {
	onEveryWire(t, stackOptions{policy: oneSlot}, func(t *testing.T, s *stack, c *http.Client) {
		stream := s.background(c, chatPath, "x-stub-mode", "stream", "x-stub-chunks", "5", "x-stub-gap", "100ms")
		s.waitInflight("full", 1, 0)
		next := s.background(c, chatPath)
		s.waitInflight("full", 1, 1)
		if s.stub.Stats().InflightMax > 1 { // the first may still be on its way
			t.Error("two requests were at the upstream at once")
		}
		if a := <-stream; a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("stream: %v", a)
		}
		if a := <-next; a.status != 200 {
			t.Errorf("next: %v", a)
		}
		if s.stub.Stats().InflightMax != 1 {
			t.Error("the slot was freed before the stream had ended")
		}
	})
}

// TestBothTransportsToTheProcessor: everything else runs over a Unix socket.
func TestTheProcessorOverTCP(t *testing.T) {
	s := startStack(t, stackOptions{tcp: true})
	if a := s.send(t.Context(), newClient(t, true), chatPath); a.status != 200 || a.header.Get("x-tier") != "full" {
		t.Errorf("got %v", a)
	}
	s.checkBooks()
}

func TestPlantedHeadersReachNobody(t *testing.T) {
	onEveryWire(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		planted := []string{"x-tier", "small", "x-degraded", "true", "x-degraded-reason", "x", "x-brownout-seal", "on", "x-brownout-id", "1",
			"x-brownout-source", "replay", "x-brownout-whatever", "1"}
		h := s.upstreamHeaders(c, planted...)
		for name := range h {
			if n := strings.ToLower(name); strings.HasPrefix(n, "x-brownout-") || strings.HasPrefix(n, "x-degraded") {
				t.Errorf("the upstream received %s: %q", name, h[name])
			}
		}
		if v := h.Values("x-tier"); len(v) != 1 || v[0] != "full" {
			t.Errorf("the upstream received x-tier %q, want ours alone", v)
		}
		a := s.send(t.Context(), c, "/elsewhere", append(planted, "x-stub-echo", "1")...)
		if strings.Contains(strings.ToLower(a.body), "x-tier") || strings.Contains(strings.ToLower(a.body), "x-brownout-") || a.status != 200 {
			t.Errorf("an unmatched request kept a planted header: %v", a)
		}
		for _, name := range []string{"x-tier", "x-degraded", "x-brownout-source"} {
			if a.header.Get(name) != "" {
				t.Errorf("an unmatched answer got %s: %q", name, a.header.Get(name))
			}
		}
	})
}

// TestAClientThatStopsReading holds its own stream and slot, and nobody else's.
func TestAClientThatStopsReadingHoldsOnlyItsOwnStream(t *testing.T) {
	onEveryWireNoBooks(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.envoy.URL(chatPath), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-stub-mode", "stream")
		req.Header.Set("x-stub-chunks", "100000") // about 20 MB: more than the buffers on the way hold
		h2 := c.Transport.(*http.Transport).Protocols.UnencryptedHTTP2()
		stalled, err := newClient(t, h2).Do(req) // a connection of its own
		if err != nil {
			t.Fatal(err)
		}
		defer stalled.Body.Close()
		if h2 != (stalled.ProtoMajor == 2) {
			t.Fatalf("the stalled reader speaks %s", stalled.Proto)
		}
		s.waitInflight("full", 1, 0)
		for range 20 {
			if a := s.send(t.Context(), c, chatPath); a.status != 200 || a.took > time.Second {
				t.Errorf("beside a stalled reader: %v", a)
			}
		}
		s.waitInflight("full", 1, 0)
		stalled.Body.Close()
		testkit.Eventually(t, 5*time.Second, func() bool { return s.metric("brownout_inflight") == 0 }, "the stalled reader's slot never came back")
	})
}
