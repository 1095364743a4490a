package e2e

import (
	"net/http"
	"strconv"
	"testing"
)

const internalTrust = chatPolicy + "priority: {trust: internal}\n"

// TestAPlantedInternalMarkIsNotBelieved: priority.trust internal rests on x-envoy-internal, which Envoy must take from
// no caller.
func TestAPlantedInternalMarkIsNotBelieved(t *testing.T) {
	onEveryWire(t, stackOptions{policy: internalTrust}, func(t *testing.T, s *stack, c *http.Client) {
		for _, hs := range [][]string{
			{"x-priority", "high", "x-envoy-internal", "true"},
			{"x-priority", "high", "x-envoy-internal", "true", "x-forwarded-for", "10.0.0.1"},
		} {
			if a := s.send(t.Context(), c, chatPath, hs...); a.status != 200 {
				t.Errorf("%q: %v", hs, a)
			}
		}
		if n := s.metric("brownout_queue_wait_seconds", "class", "high"); n != 0 {
			t.Errorf("%d requests were believed to be internal", n)
		}
		if n := s.metric("brownout_ignored_headers_total", "header", "x-priority"); n != 2 {
			t.Errorf("%d ignored priorities counted, want 2", n)
		}
	})
}

// TestAnInternalNetworkIsBelieved: with --internal the mark and an outer Envoy's timeout come through.
func TestAnInternalNetworkIsBelieved(t *testing.T) {
	s := startStack(t, stackOptions{policy: internalTrust, internal: []string{"127.0.0.0/8"}})
	c := newClient(t, false)
	h := s.upstreamHeaders(c, "x-priority", "high", "x-envoy-expected-rq-timeout-ms", "1000")
	if n := s.metric("brownout_queue_wait_seconds", "class", "high"); n != 1 {
		t.Errorf("%d requests of class high, want 1", n)
	}
	if ms, _ := strconv.Atoi(h.Get("x-deadline-remaining-ms")); ms < 600 || ms > 713 || h.Get("x-deadline-covers") != "whole" {
		t.Errorf("%d ms remain, covers %q; want killAt of 750 ms and whole", ms, h.Get("x-deadline-covers"))
	}
	s.checkBooks()
}
