package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// leaderPolicy has one slot and one place in the better tier; the routes differ in what is below it.
const leaderPolicy = `version: 1
tiers:
  full:   {model: {concurrency: 1, queue: 1}}
  narrow: {model: {concurrency: 1, queue: 0}}
  small:  {model: {concurrency: 8, queue: 8}}
  canned: {template: {text: "We are at capacity."}}
routes:
- {name: bare, match: {path: {prefix: /bare}}, ladder: [full], cache: {ttl: 1h}, idempotency: {ttl: 1h}}
- {name: degrading, match: {path: {prefix: /degrading}}, ladder: [narrow, small], cache: {ttl: 1h}, idempotency: {ttl: 1h}}
- {name: canned, match: {path: {prefix: /canned}}, ladder: [full, canned], cache: {ttl: 1h}, idempotency: {ttl: 1h}}
`

const followers = 20

// crew is a leader and those who follow it.
type crew struct {
	*claims
	idem bool // they share an idempotency key; else only the question
}

// ask is what all of them ask on a route.
func (x *crew) ask(route, body string, headers ...string) answer {
	if x.idem {
		headers = append(headers, "idempotency-key", "crew")
	}
	return x.postAs(x.t.Context(), x.c, route+"/chat/completions", body, append([]string{"authorization", "Bearer crew"}, headers...)...)
}

// lead starts a leader, lets the followers join it once ready says so, and returns all answers.
func (x *crew) lead(route, body string, ready func() bool, headers ...string) (leader answer, rest []answer) {
	x.t.Helper()
	first, all := make(chan answer, 1), make(chan answer, followers)
	go func() { first <- x.ask(route, body, headers...) }()
	testkit.Eventually(x.t, 5*time.Second, ready, "the leader never ran or waited")
	for range followers {
		go func() { all <- x.ask(route, body, headers...) }()
	}
	for range followers {
		rest = append(rest, <-all)
	}
	return <-first, rest
}

// runs says when a tier has so many in flight, waits when so many wait for it.
func (x *crew) runs(tier string, n int) func() bool {
	return func() bool { return x.metric("brownout_inflight", "tier", tier) == n }
}

func (x *crew) waits(tier string) func() bool {
	return func() bool { return x.metric("brownout_queue_depth", "tier", tier) == 1 }
}

// hold keeps the one slot of a route's best tier with another question.
func (x *crew) hold(route, tier string) (done <-chan answer) {
	ch := make(chan answer, 1)
	go func() {
		ch <- x.postAs(x.t.Context(), x.c, route+"/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hold"}]}`, "authorization", "Bearer holder", "x-script", "held", "x-budget-ms", "9000")
	}()
	testkit.Eventually(x.t, 5*time.Second, x.runs(tier, 1), "the slot was never taken")
	return ch
}

// wantAll wants every follower's answer to be as told.
func (x *crew) wantAll(rest []answer, what string, ok func(a answer) bool) {
	x.t.Helper()
	for i, a := range rest {
		if !ok(a) {
			x.t.Errorf("follower %d: %s %v, want %s", i, a, a.header, what)
			return
		}
	}
}

const (
	crewDocument = `{"model":"m","messages":[{"role":"user","content":"crew"}]}`
	crewStream   = `{"model":"m","stream":true,"messages":[{"role":"user","content":"crew"}]}`
)

// leaderRows are what becomes of a leader, and of its followers with it. calls are those upstream for all of them.
var leaderRows = []struct {
	name  string
	calls int
	run   func(x *crew)
}{
	{"shed: they are refused alike", 0, func(x *crew) {
		held := x.hold("/bare", "full")
		leader, rest := x.lead("/bare", crewDocument, x.waits("full"), "x-script", "crew", "x-max-queue-ms", "500")
		alike := func(a answer) bool {
			return a.status == 503 && a.reason() == "queue_full" && a.header.Get("x-brownout-source") == "shed" && a.header.Get("retry-after") != ""
		}
		x.wantAll(append(rest, leader), "the leader's refusal", alike)
		<-held
	}},
	{"degraded: they are told so", 1, func(x *crew) {
		held := x.hold("/degrading", "narrow")
		leader, rest := x.lead("/degrading", crewDocument, x.runs("small", 1), "x-script", "crew")
		labelled := func(a answer) bool {
			return a.status == 200 && a.header.Get("x-tier") == "small" && a.header.Get("x-degraded-reason") == "queue_pressure" && strings.Contains(a.body, `"meta":{"tier":"small","degraded":true,"reason":"queue_pressure"`)
		}
		x.wantAll(append(rest, leader), "the small tier's answer with its label", labelled)
		x.wantAll(rest, "a replay", func(a answer) bool { return a.header.Get("idempotent-replayed") == "true" })
		<-held
	}},
	{"failed: the error where there is nothing else", 1, func(x *crew) {
		leader, rest := x.lead("/bare", crewDocument, x.runs("full", 1), "x-script", "crew 500")
		same := func(a answer) bool { return a.status == 500 && a.body == crewError }
		x.wantAll(append(rest, leader), "the upstream's error", same)
	}},
	{"failed: a tier that needs no compute", 1, func(x *crew) {
		leader, rest := x.lead("/canned", crewDocument, x.runs("full", 1), "x-script", "crew 500")
		x.wantAll(append(rest, leader), "the template", standsIn("upstream_error"))
	}},
	{"a document cut: the error where there is nothing else", 1, func(x *crew) {
		leader, rest := x.lead("/bare", crewDocument, x.runs("full", 1), "x-script", "crew cut")
		same := func(a answer) bool { return a.status == 502 && a.reason() == "upstream_truncated" }
		x.wantAll(append(rest, leader), "502 upstream_truncated", same)
	}},
	{"a document cut: a tier that needs no compute", 1, func(x *crew) {
		leader, rest := x.lead("/canned", crewDocument, x.runs("full", 1), "x-script", "crew cut")
		x.wantAll(append(rest, leader), "the template", standsIn("upstream_truncated"))
	}},
	{"a stream cut: the error where there is nothing else", 1, func(x *crew) {
		leader, rest := x.lead("/bare", crewStream, x.runs("full", 1), "x-script", "crew stream cut")
		if leader.status != 200 || !strings.Contains(leader.body, `"reason":"upstream_truncated"`) {
			x.t.Errorf("leader: %s, want what there is and our frame", leader)
		}
		x.wantAll(rest, "502 upstream_truncated", func(a answer) bool { return a.status == 502 && a.reason() == "upstream_truncated" })
	}},
	{"a stream cut: a tier that needs no compute", 1, func(x *crew) {
		leader, rest := x.lead("/canned", crewStream, x.runs("full", 1), "x-script", "crew stream cut")
		if leader.status != 200 || !strings.Contains(leader.body, `"reason":"upstream_truncated"`) {
			x.t.Errorf("leader: %s, want what there is and our frame", leader)
		}
		x.wantAll(rest, "the template", standsIn("upstream_truncated"))
	}},
	{"its deadline: a tier that needs no compute", 1, func(x *crew) {
		leader, rest := x.lead("/canned", crewDocument, x.runs("full", 1), "x-script", "crew hang", "x-budget-ms", "600")
		x.wantAll(append(rest, leader), "the template", standsIn("deadline"))
	}},
}

func standsIn(reason string) func(a answer) bool {
	return func(a answer) bool {
		return a.status == 200 && a.header.Get("x-brownout-source") == "template" && a.header.Get("x-degraded-reason") == reason
	}
}

const crewError = `{"error":{"message":"engine failed"}}`

// TestWhatBecomesOfALeaderBecomesOfItsFollowers: each row of what can happen to it, for those who follow by their question
// and by their idempotency key.
func TestWhatBecomesOfALeaderBecomesOfItsFollowers(t *testing.T) {
	for _, idem := range []bool{false, true} {
		for _, row := range leaderRows {
			t.Run(fmt.Sprintf("%s, by key %t", row.name, idem), func(t *testing.T) {
				u := startScripted(t)
				header := map[string]string{"content-type": "application/json"}
				slow := 300 * time.Millisecond
				u.add("held", script{header: header, chunks: []string{wholeChat[:9], wholeChat[9:]}, gap: 1200 * time.Millisecond})
				u.add("crew", script{header: header, chunks: []string{wholeChat[:9], wholeChat[9:]}, gap: slow})
				u.add("crew 500", script{status: http.StatusInternalServerError, header: header, chunks: []string{crewError[:9], crewError[9:]}, gap: slow})
				u.add("crew cut", script{header: header, chunks: []string{wholeChat[:9], wholeChat[9:20]}, gap: slow, end: cut})
				u.add("crew hang", script{header: header, chunks: []string{wholeChat[:9]}, end: hang})
				u.add("crew stream cut", script{chunks: []string{CH("a"), CH("b")}, gap: slow, end: cut})
				s := startStack(t, stackOptions{policy: leaderPolicy, upstreamAddr: u.Listener.Addr().String()})
				x := &crew{&claims{stack: s, t: t, u: u, c: newClient(t, true)}, idem}
				row.run(x)
				if n := x.u.total() - u.count(u.calls, "held"); n != row.calls {
					t.Errorf("%d calls upstream for %d who asked the same, want %d", n, followers+1, row.calls)
				}
				if n := s.metric("brownout_replay_total", "result", "joined"); n != followers {
					t.Errorf("%d joined, want %d", n, followers)
				}
				s.books()
			})
		}
	}
}
