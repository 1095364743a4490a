package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// latency is a fixed service time.
func latency(t *testing.T, s string) stub.Latency {
	t.Helper()
	l, err := stub.ParseLatency(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// burst sends n requests at once and returns the answers.
func burst(s *stack, n int, clients []*http.Client, headers ...string) []answer {
	answers := make([]answer, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = s.send(s.t.Context(), clients[i%len(clients)], chatPath, headers...)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

// tallyAnswers counts answers by status, source and reason.
func tallyAnswers(answers []answer) map[string]int {
	n := map[string]int{}
	for _, a := range answers {
		if a.err != nil {
			n["error: "+a.err.Error()]++
			continue
		}
		n[fmt.Sprintf("%d %s %s", a.status, a.header.Get("x-brownout-source"), a.reason())]++
	}
	return n
}

func TestTheSeedsBurst(t *testing.T) {
	onEveryWire(t, stackOptions{stub: stub.Config{Latency: latency(t, "300ms")}}, func(t *testing.T, s *stack, c *http.Client) {
		got := tallyAnswers(burst(s, 60, []*http.Client{c}))
		if got["200 upstream "] != 12 || got["503 shed queue_full"] != 48 {
			t.Errorf("got %v, want 12 admitted and 48 shed", got)
		}
		st := s.stub.Stats()
		if st.Started != 12 || st.InflightMax != 4 {
			t.Errorf("the upstream started %d, at most %d at once; want 12 and 4", st.Started, st.InflightMax)
		}
		if n := s.metric("brownout_queue_depth_max", "tier", "full"); n != 8 {
			t.Errorf("at most %d waited, want 8", n)
		}
	})
}

func TestAShedIsHonest(t *testing.T) {
	onEveryWire(t, stackOptions{stub: stub.Config{Latency: latency(t, "500ms")}}, func(t *testing.T, s *stack, c *http.Client) {
		for _, a := range burst(s, 13, []*http.Client{c}) {
			if a.status == 200 {
				checkHeader(t, a, "x-tier", "full")
				checkHeader(t, a, "x-degraded", "false")
				continue
			}
			if a.status != 503 || a.body != `{"error":{"message":"capacity: queue_full","type":"capacity","param":null,"code":"queue_full"},"reason":"queue_full"}` {
				t.Errorf("shed: %v", a)
			}
			checkHeader(t, a, "retry-after", "1")
			checkHeader(t, a, "x-brownout-source", "shed")
			checkHeader(t, a, "x-degraded", "false")
			checkHeader(t, a, "x-tier", "")
			checkHeader(t, a, "content-type", "application/json")
			checkHeader(t, a, "x-should-retry", "")
			if a.header.Get("retry-after-ms") == "" {
				t.Errorf("no retry-after-ms: %v", a.header)
			}
		}
	})
}

func checkHeader(t *testing.T, a answer, name, want string) {
	t.Helper()
	if got := a.header.Get(name); got != want || len(a.header.Values(name)) > 1 {
		t.Errorf("%s is %q, want %q once, in %v", name, a.header.Values(name), want, a)
	}
}

// oneSlot lets one request run and many wait.
const oneSlot = `version: 1
budget: {default: 5s}
tiers:
  full: {model: {concurrency: 1, queue: 20}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
`

func TestPriorityBeforeBatchAndEarliestDeadlineWithinAClass(t *testing.T) {
	onEveryWire(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "150ms")}}, func(t *testing.T, s *stack, c *http.Client) {
		first := s.background(c, chatPath, "x-stub-latency", "400ms")
		s.waitInflight("full", 1, 0)
		type queued struct {
			name string
			ch   <-chan answer
		}
		var line []queued
		for i, r := range []struct{ name, priority, budget string }{
			{"batch-late", "", "4000"}, {"batch-soon", "", "3000"}, {"high-late", "high", "4500"}, {"high-soon", "high", "3500"},
		} {
			line = append(line, queued{r.name, s.background(c, chatPath, "x-priority", r.priority, "x-budget-ms", r.budget)})
			s.waitInflight("full", 1, i+1)
		}
		<-first
		type ended struct {
			name string
			at   time.Time
		}
		done := make(chan ended, len(line))
		for _, q := range line {
			go func() { <-q.ch; done <- ended{q.name, time.Now()} }()
		}
		var order []string
		for range line {
			order = append(order, (<-done).name)
		}
		if want := "[high-soon high-late batch-soon batch-late]"; fmt.Sprint(order) != want {
			t.Errorf("ran in order %v, want %s", order, want)
		}
	})
}

func TestExpiryInTheQueueIsA503OfOurs(t *testing.T) {
	onEveryWire(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "1s")}}, func(t *testing.T, s *stack, c *http.Client) {
		first := s.background(c, chatPath)
		s.waitInflight("full", 1, 0)
		a := s.send(t.Context(), c, chatPath, "x-budget-ms", "300")
		if a.status != 503 || a.body != `{"error":{"message":"capacity: deadline_expired","type":"capacity","param":null,"code":"deadline_expired"},"reason":"deadline_expired"}` {
			t.Errorf("got %v, want 503 deadline_expired", a)
		}
		checkHeader(t, a, "x-should-retry", "false")
		checkHeader(t, a, "x-brownout-source", "shed")
		if a.took < 285*time.Millisecond || a.took > 600*time.Millisecond {
			t.Errorf("answered after %s, want at killAt (285 ms)", a.took)
		}
		if a := <-first; a.status != 200 {
			t.Errorf("the running request: %v", a)
		}
		if n := s.stub.Stats().Started; n != 1 {
			t.Errorf("the upstream saw %d requests, want 1", n)
		}
	})
}

func TestDoNotQueueMe(t *testing.T) {
	s := startStack(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "500ms")}})
	c := newClient(t, false)
	first := s.background(c, chatPath)
	s.waitInflight("full", 1, 0)
	if a := s.send(t.Context(), c, chatPath, "x-max-queue-ms", "0"); a.status != 503 || a.reason() != "queue_full" || a.took > 200*time.Millisecond {
		t.Errorf("got %v, want queue_full at once", a)
	}
	<-first
	s.checkBooks()
}

const twoTiers = `version: 1
tiers:
  full:  {model: {concurrency: 1, queue: 0}}
  small: {model: {concurrency: 1, queue: 0}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full, small]
`

func TestALowerTierIsLabelled(t *testing.T) {
	onEveryWire(t, stackOptions{policy: twoTiers, stub: stub.Config{Latency: latency(t, "400ms")}}, func(t *testing.T, s *stack, c *http.Client) {
		first := s.background(c, chatPath)
		s.waitInflight("full", 1, 0)
		second := s.background(c, chatPath, "x-stub-echo", "1")
		s.waitInflight("small", 1, 0)
		if a := s.send(t.Context(), c, chatPath); a.status != 503 || a.reason() != "queue_full" {
			t.Errorf("third: %v, want queue_full", a)
		}
		a := <-second
		checkHeader(t, a, "x-tier", "small")
		checkHeader(t, a, "x-degraded", "true")
		checkHeader(t, a, "x-degraded-reason", "queue_pressure")
		a = <-first
		checkHeader(t, a, "x-tier", "full")
		checkHeader(t, a, "x-degraded", "false")
		checkHeader(t, a, "x-degraded-reason", "")
		s.envoy.WaitAccessLog(3)
		for _, e := range s.envoy.AccessLog() {
			if e.Status == 200 && e.Route != "chat/"+e.Tier+"/sealed" {
				t.Errorf("tier %s was served by route %s", e.Tier, e.Route)
			}
		}
		if n := s.metric("brownout_degraded_total", "tier", "small", "reason", "queue_pressure"); n != 1 {
			t.Errorf("brownout_degraded_total is %d, want 1", n)
		}
	})
}

func TestABurstOfAThousandHasADefiniteOutcomeEach(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "H1", true: "H2"}[h2], func(t *testing.T) {
			s := startStack(t, stackOptions{stub: stub.Config{Latency: latency(t, "20ms")}})
			clients := make([]*http.Client, 50)
			for i := range clients {
				clients[i] = newClient(t, h2)
			}
			got := tallyAnswers(burst(s, 1000, clients))
			sum := 0
			for what, n := range got {
				sum += n
				switch what {
				case "200 upstream ", "503 shed queue_full", "503 shed deadline_expired":
				default:
					t.Errorf("%d × %s", n, what)
				}
			}
			if sum != 1000 || got["200 upstream "] < 12 {
				t.Errorf("got %v", got)
			}
			s.checkBooks()
		})
	}
}
