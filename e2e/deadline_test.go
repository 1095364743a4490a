package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

func TestASilentUpstreamEndsInA504AtTheDeadline(t *testing.T) {
	onEveryWire(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		for _, budget := range []time.Duration{200 * time.Millisecond, time.Second} {
			a := s.late(t, c, budget, "x-budget-ms", fmt.Sprint(budget.Milliseconds()))
			if a.status != 504 || a.body != `{"error":{"message":"deadline: deadline","type":"deadline","param":null,"code":"deadline"},"reason":"deadline"}` {
				t.Errorf("got %v, want a 504 of ours", a)
			}
			checkHeader(t, a, "x-brownout-source", "deadline")
			checkHeader(t, a, "x-should-retry", "false")
			checkHeader(t, a, "retry-after", "")
			checkHeader(t, a, "x-tier", "")
			killAt := budget - min(50*time.Millisecond, budget/20)
			if a.took < killAt || a.took > budget+50*time.Millisecond {
				t.Errorf("budget %s: answered after %s, want between %s and %s", budget, a.took, killAt, budget+50*time.Millisecond)
			}
		}
		testkit.Eventually(t, time.Second, func() bool { st := s.stub.Stats(); return st.Cancelled == st.Started }, "the upstream was not cancelled")
	})
}

// late asks the slow upstream, up to three times where the answer is later than budget and 50 ms: the machine may have stood
// still, and the client measures its own connect too.
func (s *stack) late(t *testing.T, c *http.Client, budget time.Duration, headers ...string) answer {
	t.Helper()
	defer s.keepWarm(c)()
	var a answer
	for range 3 {
		a = s.send(t.Context(), c, chatPath, append([]string{"x-stub-mode", "slow"}, headers...)...)
		if a.took <= budget+50*time.Millisecond {
			break
		}
		t.Logf("once more: %v", a)
	}
	return a
}

// keepWarm lets other requests meet their deadlines all the while. A machine that gives memory back lets go of programs that
// have done nothing for a second, and reading them again takes longer than what is measured.
func (s *stack) keepWarm(c *http.Client) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.send(s.t.Context(), c, chatPath, "x-stub-mode", "slow", "x-budget-ms", "100")
		}
	}()
	return func() { cancel(); <-done }
}

func TestTheDefaultBudget(t *testing.T) {
	s := startStack(t, stackOptions{})
	a := s.late(t, newClient(t, false), 2500*time.Millisecond)
	if a.status != 504 || a.took < 2450*time.Millisecond || a.took > 2550*time.Millisecond {
		t.Errorf("got %v, want 504 after 2450 to 2550 ms", a)
	}
	s.checkBooks()
}

func TestADefaultBudgetDoesNotEndAStreamAndAStatedOneDoes(t *testing.T) {
	policy := strings.Replace(chatPolicy, "tiers:", "budget: {default: 300ms}\ntiers:", 1)
	s := startStack(t, stackOptions{policy: policy})
	c := newClient(t, false)
	stream := []string{"x-stub-mode", "stream", "x-stub-chunks", "6", "x-stub-gap", "100ms"}
	a := s.send(t.Context(), c, chatPath, stream...)
	if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || a.took < 500*time.Millisecond {
		t.Errorf("default budget: %v, want the whole stream", a)
	}
	checkHeader(t, a, "x-accel-buffering", "no")
	a = s.send(t.Context(), c, chatPath, append(stream, "x-budget-ms", "250")...)
	if a.status != 200 || a.err != nil || !strings.Contains(a.body, `"reason":"deadline","complete":false}`) || strings.Contains(a.body, "word5") {
		t.Errorf("stated budget: %v, want an honest ending in mid-stream", a)
	}
	testkit.Eventually(t, 5*time.Second, func() bool {
		return s.metric("brownout_requests_total", "outcome", "ok") == 1 && s.metric("brownout_requests_total", "outcome", "deadline") == 1
	}, "want one ok and one deadline")
}

// echoed is what the stub says it received.
type echoed struct {
	Headers map[string][]string `json:"headers"`
}

// upstreamHeaders sends a request and returns what reached the upstream.
func (s *stack) upstreamHeaders(c *http.Client, headers ...string) http.Header {
	s.t.Helper()
	a := s.send(s.t.Context(), c, chatPath, append(headers, "x-stub-echo", "1")...)
	var e echoed
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != 200 {
		s.t.Fatalf("no echo in %v: %v", a, err)
	}
	h := http.Header{}
	for k, v := range e.Headers {
		h[http.CanonicalHeaderKey(k)] = v
	}
	return h
}

func TestTheRemainingTimeIsForwarded(t *testing.T) {
	onEveryWire(t, stackOptions{policy: oneSlot}, func(t *testing.T, s *stack, c *http.Client) {
		first := s.background(c, chatPath, "x-stub-latency", "300ms")
		s.waitInflight("full", 1, 0)
		h := s.upstreamHeaders(c, "x-budget-ms", "2000")
		<-first
		ms, err := strconv.Atoi(h.Get("x-deadline-remaining-ms"))
		if err != nil || ms > 1950 || ms < 1500 || len(h.Values("x-deadline-remaining-ms")) != 1 {
			t.Errorf("the upstream was told %q remain, want killAt (1950) less the wait", h.Values("x-deadline-remaining-ms"))
		}
		if h.Get("x-deadline-covers") != "whole" || h.Get("x-tier") != "full" {
			t.Errorf("covers %q, tier %q", h.Get("x-deadline-covers"), h.Get("x-tier"))
		}
		if h := s.upstreamHeaders(c); h.Get("x-deadline-covers") != "first_content" {
			t.Errorf("default budget covers %q, want first_content", h.Get("x-deadline-covers"))
		}
	})
}

// checkBudgetValues checks what counts as a budget, what is ignored and counted, what is gone already.
func checkBudgetValues(t *testing.T, s *stack, c *http.Client) {
	t.Helper()
	for _, v := range []string{"-5", "0"} {
		a := s.send(t.Context(), c, chatPath, "x-budget-ms", v)
		if a.status != 503 || a.reason() != "deadline_expired" || a.took > time.Second {
			t.Errorf("%q: %v, want deadline_expired at once", v, a)
		}
	}
	ignored := 0
	for _, v := range []string{"1e3", "500ms", "2500.5", "99999999999999999999"} {
		ignored++
		h := s.upstreamHeaders(c, "x-budget-ms", v)
		if h.Get("x-deadline-covers") != "first_content" {
			t.Errorf("%q was taken for a budget", v)
		}
		if n := s.metric("brownout_ignored_headers_total", "header", "x-budget-ms"); n != ignored {
			t.Errorf("%q: %d ignored values counted, want %d", v, n, ignored)
		}
	}
	for _, hs := range [][]string{{"x-budget-ms", "900", "x-budget-ms", "300"}, {"x-budget-ms", "900, 300"}, {"x-budget-ms", " 300"},
		{"x-deadline-remaining-ms", "300"}, {"grpc-timeout", "300m"}} {
		if ms, _ := strconv.Atoi(s.upstreamHeaders(c, hs...).Get("x-deadline-remaining-ms")); ms < 200 || ms > 300 {
			t.Errorf("%q: %d ms remain, want about 285", hs, ms)
		}
	}
}

func TestAClientThatLeavesWhileQueuedOrRunning(t *testing.T) {
	onEveryWire(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "5s")}}, func(t *testing.T, s *stack, c *http.Client) {
		running, leave := context.WithCancel(t.Context())
		gone := make(chan answer, 1)
		go func() { gone <- s.send(running, c, chatPath) }()
		s.waitInflight("full", 1, 0)

		queued, leaveQueue := context.WithCancel(t.Context())
		goneToo := make(chan answer, 1)
		go func() { goneToo <- s.send(queued, c, chatPath) }()
		s.waitInflight("full", 1, 1)
		leaveQueue()
		<-goneToo
		s.waitInflight("full", 1, 0)

		next := s.background(c, chatPath, "x-stub-latency", "10ms")
		s.waitInflight("full", 1, 1)
		left := time.Now()
		leave()
		<-gone
		if a := <-next; a.status != 200 || time.Since(left) > time.Second {
			t.Errorf("the next in line: %v, %s after the slot's owner left", a, time.Since(left))
		}
		testkit.Eventually(t, time.Second, func() bool { return s.stub.Stats().Cancelled == 1 }, "the upstream was not cancelled")
		if n := s.metric("brownout_requests_total", "outcome", "client_aborted"); n != 2 {
			t.Errorf("%d requests counted as client_aborted, want 2", n)
		}
	})
}
