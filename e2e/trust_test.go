package e2e

import (
	"net/http"
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
