package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// replayCasePolicy has a route for each way an answer is kept or replaced; /v1 keeps all it may.
const replayCasePolicy = `version: 1
tiers:
  full:   {model: {concurrency: 16, queue: 100}}
  narrow: {model: {concurrency: 1, queue: 0}}
  small:  {model: {concurrency: 16, queue: 100}}
  cached: {cache: {stale_for: 1h}}
  canned: {template: {text: "We are at capacity."}}
routes:
- {name: laddered, match: {path: {prefix: /laddered}}, ladder: [full, cached, canned], cache: {ttl: 1h}}
- {name: timed, match: {path: {prefix: /timed}}, ladder: [full, canned], stream: {first_token: 300ms}}
- {name: shared, match: {path: {prefix: /shared}}, ladder: [full], cache: {ttl: 1h, anonymous: share}}
- {name: ignoring, match: {path: {prefix: /ignoring}}, ladder: [full], cache: {ttl: 1h, ignore: [x_trace]}}
- {name: narrow, match: {path: {prefix: /narrow}}, ladder: [narrow, small], cache: {ttl: 1h}}
- {name: stale, match: {path: {prefix: /stale}}, ladder: [full, cached], cache: {ttl: 200ms}}
- {name: retried, match: {path: {prefix: /retried}}, ladder: [full], retry: {retries: 1}}
- {name: chat, match: {path: {prefix: /v1}}, ladder: [full], cache: {ttl: 1h}, idempotency: {ttl: 1h}}
`

// replayCase is a case about the ladder, retries, kept answers or idempotency keys.
type replayCase struct {
	id  string
	run func(x *caseBench)
}

// caseBench is where one such case runs: a stack for all, and a question of its own.
type caseBench struct {
	*claims
	id string
}

// replayCases are the cases of the sections A, G and I whose answers are kept, replaced or repeated.
func replayCases() []replayCase {
	return []replayCase{
		{"C04", caseC04}, {"C77", caseC77}, {"C78", caseC78}, {"C79", caseC79}, {"C81", caseC81}, {"C83", caseC83}, {"C85", caseC85}, {"C86", caseC86},
		{"C87", caseC87}, {"C96", caseC96}, {"C97", caseC97}, {"C98", caseC98}, {"C99", caseC99}, {"C101", caseC101}, {"C102", caseC102},
		{"C103", caseC103}, {"C104", caseC104}, {"C106", caseC106}, {"C107", caseC107},
	}
}

// TestCaseReplay runs them over HTTP/1.1 and HTTP/2 on both sides.
func TestCaseReplay(t *testing.T) {
	for _, w := range []wire{wires[0], wires[3]} {
		s, u := startReplays(t, stackOptions{policy: replayCasePolicy, scheme: w.upstream})
		x := claims{stack: s, u: u, c: newClient(t, w.h2)}
		for _, rc := range replayCases() {
			t.Run(rc.id+"/"+w.name, func(t *testing.T) {
				x := x
				x.t, x.key = t, rc.id
				rc.run(&caseBench{&x, rc.id})
			})
		}
		s.books() // nothing is left over; what bodies say of an outcome no access log can know
	}
}

// post asks question on a route, as tenant A unless headers say otherwise.
func (x *caseBench) post(route, question string, headers ...string) answer {
	x.t.Helper()
	who := []string{"authorization", "Bearer tenant-a"}
	for _, h := range headers {
		if h == "authorization" || h == "anonymous" {
			who = nil
		}
	}
	if len(headers) > 0 && headers[0] == "anonymous" {
		headers = headers[1:]
	}
	return x.postAs(x.t.Context(), x.c, route+"/chat/completions", x.question(question), append(who, headers...)...)
}

// question is a request's body; one that begins as JSON is it already.
func (x *caseBench) question(text string) string {
	if strings.HasPrefix(text, "{") {
		return text
	}
	return `{"model":"m","messages":[{"role":"user","content":"` + x.id + " " + text + `"}]}`
}

// streamed is a question that asks for a stream.
func (x *caseBench) streamed(text string) string {
	return strings.Replace(x.question(text), "{", `{"stream":true,`, 1)
}

// says adds a script of the upstream's.
func (x *caseBench) says(name string, s script) (header, value string) {
	if s.header == nil {
		s.header = map[string]string{"content-type": "application/json"}
		if len(s.chunks) > 0 && strings.HasPrefix(s.chunks[0], "data:") {
			s.header["content-type"] = "text/event-stream"
		}
	}
	return x.u.add(x.id+" "+name, s)
}

// wantOwn wants each of several requests to be a call of its own.
func (x *caseBench) wantOwn(what string, n int, ask func(i int) answer) {
	x.t.Helper()
	for i := range n {
		before := x.u.total()
		if a := ask(i); a.header.Get("x-brownout-source") == "replay" {
			x.t.Errorf("%s, request %d: %s, want an answer of its own", what, i, a)
		}
		x.wantCalls(before, 1)
	}
}

// wantHit wants a replay of the body.
func (x *caseBench) wantHit(what string, a answer, body string) {
	x.t.Helper()
	if a.status != 200 || a.body != body || a.header.Get("x-brownout-source") != "replay" || a.header.Get("idempotent-replayed") != "true" {
		x.t.Errorf("%s: %s, want a replay", what, a)
	}
}

// wantStandIn wants the template in the place of an answer.
func (x *caseBench) wantStandIn(what string, a answer, reason string) {
	x.t.Helper()
	if a.status != 200 || a.header.Get("x-brownout-source") != "template" || a.header.Get("x-degraded-reason") != reason || a.header.Get("retry-after") != "" {
		x.t.Errorf("%s: %s %v, want the template for %s", what, a, a.header, reason)
	}
}

// outcomes is how many requests have ended in an outcome.
func (x *caseBench) outcomes(name string) int {
	x.t.Helper()
	x.waitInflight("full", 0, 0)
	return x.metric("brownout_requests_total", "outcome", name)
}

// wantOutcome wants an answer's request to have ended so.
func (x *caseBench) wantOutcome(name string, ask func() answer) answer {
	x.t.Helper()
	before := x.outcomes(name)
	a := ask()
	if n := x.outcomes(name) - before; n != 1 {
		x.t.Errorf("%s: %d more ended as %s, want 1", a, n, name)
	}
	return a
}

// caseC04: what ended without its evidence is not kept, however often it is asked for.
func caseC04(x *caseBench) {
	for name, chunks := range map[string][]string{"no end": {CH("a")}, "a sentinel and no finish reason": {CH("a"), DONE}} {
		k, v := x.says(name, script{chunks: chunks})
		before := x.metric("brownout_replay_total", "result", "not_stored_incomplete")
		x.wantOwn(name, 2, func(int) answer { return x.post("/v1", x.streamed(name), k, v) })
		x.waitInflight("full", 0, 0)
		if n := x.metric("brownout_replay_total", "result", "not_stored_incomplete") - before; n != 2 {
			x.t.Errorf("%s: %d counted as not stored because they were incomplete, want 2", name, n)
		}
	}
}

// caseC77: why a scheduler dropped a request tells what is done about it.
func caseC77(x *caseBench) {
	dropped := func(name string) (header, value string) {
		h := map[string]string{"content-type": "text/plain"}
		if name != "" {
			h["x-llm-d-request-dropped-reason"] = name
		}
		return x.says("dropped: "+name+".", script{status: 429, header: h, chunks: []string{"no"}})
	}
	for name, want := range map[string]struct{ outcome, reason string }{
		"rejected-saturated": {"overloaded", "upstream_error"}, "evicted-foo": {"evicted", "preempted"}, "evicted-by-priority": {"evicted", "preempted"},
		"": {"throttled", "upstream_throttled"},
	} {
		k, v := dropped(name)
		x.wantOutcome(want.outcome, func() answer { return x.post("/v1", name, k, v) })
		x.wantStandIn(name, x.post("/laddered", name, k, v), want.reason)
	}
	k, v := dropped("rejected-ttl-expired")
	if a := x.post("/v1", "expired", k, v); a.status != 429 || a.header.Get("x-should-retry") != "false" {
		x.t.Errorf("expired while it waited: %s %v, want no retry", a, a.header)
	}
	k, v = dropped("rejected-context-cancelled")
	x.wantOutcome("client_aborted", func() answer { return x.post("/v1", "cancelled", k, v) })
}

// caseC78: a pool without endpoints is overloaded: the next tier at once, and no time to retry is invented.
func caseC78(x *caseBench) {
	k, v := x.says("no endpoints", script{status: 503, header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "rejected-no-endpoints"}, chunks: []string{"no"}})
	a := x.wantOutcome("overloaded", func() answer { return x.post("/v1", "plain", k, v) })
	checkHeader(x.t, a, "retry-after", "")
	a = x.post("/laddered", "with a ladder", k, v)
	x.wantStandIn("the next tier", a, "upstream_error")
	if a.took > 500*time.Millisecond {
		x.t.Errorf("after %v, want at once", a.took)
	}
}

// caseC79: a queue that is full says so under a 200; it is a status or the next tier, and is not kept.
func caseC79(x *caseBench) {
	k, v := x.says("queue full", script{chunks: []string{queueFull, DONE}})
	x.wantOwn("plain", 2, func(int) answer {
		a := x.post("/v1", x.streamed("plain"), k, v)
		if a.status != 503 {
			x.t.Errorf("%s, want its status", a)
		}
		return a
	})
	x.wantOwn("with a ladder", 2, func(int) answer {
		a := x.post("/laddered", x.streamed("with a ladder"), k, v)
		x.wantStandIn("with a ladder", a, "upstream_error")
		return a
	})
}

// caseC81: our own timer tells of a slow first token, an early rejection is what it says.
func caseC81(x *caseBench) {
	k, v := x.says("late", script{header: map[string]string{"content-type": "text/event-stream"}, end: hang})
	a := x.post("/timed", x.streamed("late"), k, v)
	x.wantStandIn("no token", a, "slow_first_token")
	if a.took < 300*time.Millisecond || a.took > 600*time.Millisecond {
		x.t.Errorf("after %v, want 300 ms", a.took)
	}
	k, v = x.says("rejected", script{status: 429, chunks: []string{`{"error":{"message":"queue is full"}}`}})
	x.wantStandIn("rejected", x.post("/timed", x.streamed("late"), k, v), "upstream_throttled")
}

// caseC83: who has used up a quota is not helped by a retry, but by another tier.
func caseC83(x *caseBench) {
	for name, body := range map[string]string{
		"by code": `{"error":{"message":"x","code":"insufficient_quota","type":"insufficient_quota"}}`,
		"by type": `{"error":{"message":"x","code":null,"type":"insufficient_quota"}}`,
		"credit":  `{"error":{"message":"x","code":"credit_balance_exhausted","type":"credit_balance_exhausted"}}`,
	} {
		k, v := x.says(name, script{status: 429, header: map[string]string{"content-type": "application/json", "retry-after": "20"}, chunks: []string{body}})
		a := x.wantOutcome("quota", func() answer { return x.post("/v1", name, k, v) })
		checkHeader(x.t, a, "x-should-retry", "false")
		checkHeader(x.t, a, "retry-after", "")
		x.wantStandIn(name, x.post("/laddered", name, k, v), "upstream_throttled")
	}
}

// caseC85: nobody is told to come back in sixteen days.
func caseC85(x *caseBench) {
	k, v := x.says("days", script{status: 429, header: map[string]string{"content-type": "application/json", "retry-after": "1382400"}, chunks: []string{`{"error":{"message":"x"}}`}})
	a := x.post("/v1", "plain", k, v)
	checkHeader(x.t, a, "x-should-retry", "false")
	checkHeader(x.t, a, "retry-after", "")
	x.wantStandIn("with a ladder", x.post("/laddered", "with a ladder", k, v), "upstream_throttled")
}

// caseC86: the SDK's retries are not multiplied by ours, for a status is never repeated.
func caseC86(x *caseBench) {
	x.u.add("", script{status: 503, header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"error":{"message":"busy"}}`}})
	for _, base := range []string{"", "/retried"} {
		before := x.u.total()
		out, err := exec.Command(getSDK(x.t, "python"), filepath.Join(testkit.RepoRoot(x.t), "e2e", "sdk", "python", "storm.py"),
			strings.TrimSuffix(x.envoy.URL("/"), "/")+base, "1", "0").Output()
		if err != nil || !strings.Contains(string(out), `"failed": 1`) {
			x.t.Errorf("%s: %v", out, err)
		}
		x.wantCalls(before, 3)
	}
}

// caseC87: a provider's throttling is told by its type, whatever its status.
func caseC87(x *caseBench) {
	for _, status := range []int{400, 500} {
		for name, s := range map[string]script{
			"header": {status: status, header: map[string]string{"content-type": "application/json", "x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/"}, chunks: []string{`{"message":"Too many requests"}`}},
			"body":   {status: status, chunks: []string{`{"__type":"com.amazon.coral.service#ThrottlingException","message":"Too many requests"}`}},
		} {
			name := fmt.Sprintf("%s %d", name, status)
			k, v := x.says(name, s)
			x.wantOutcome("throttled", func() answer { return x.post("/v1", name, k, v) })
			x.wantStandIn(name, x.post("/laddered", name, k, v), "upstream_throttled")
		}
	}
}

// hold keeps the one slot of the narrow tier until the returned function is called.
func (x *caseBench) hold() (release func()) {
	x.t.Helper()
	k, v := x.says("hold", script{end: hang})
	ctx, leave := context.WithCancel(x.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.postAs(ctx, x.c, "/narrow/chat/completions", x.question("hold"), k, v, "authorization", "Bearer holder", "x-budget-ms", "10000")
	}()
	x.waitInflight("narrow", 1, 0)
	return func() { leave(); <-done; x.waitInflight("narrow", 0, 0) }
}
