package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// claimPolicy reads idempotency keys and keeps nothing else; the store is appended.
const claimPolicy = `version: 1
tiers:
  full: {model: {concurrency: 64, queue: 100}}
routes:
- {name: brief, match: {path: {prefix: /brief}}, ladder: [full], idempotency: {ttl: 1s}}
- {name: chat, match: {path: {prefix: /v1}}, ladder: [full], idempotency: {ttl: 1h}}
`

const emptyChat = `{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`

// claims is one stack with claimPolicy and the caller of one row of the state table.
type claims struct {
	*stack
	t   *testing.T
	u   *scripted
	c   *http.Client
	key string
}

// startClaims is a stack in front of an upstream whose scripts are whole answers and every kind of failure.
func startClaims(t *testing.T, store string, w wire) *claims {
	t.Helper()
	s, u := startReplays(t, stackOptions{policy: claimPolicy + store, scheme: w.upstream})
	header := map[string]string{"content-type": "application/json"}
	u.add("500", script{status: 500, header: header, chunks: []string{`{"error":{"message":"engine failed"}}`}})
	u.add("429", script{status: 429, header: header, chunks: []string{`{"error":{"message":"slow down"}}`}})
	u.add("cut", script{header: header, chunks: []string{wholeChat[:40]}, end: cut})
	u.add("hang", script{header: header, chunks: []string{wholeChat[:40]}, end: hang})
	u.add("empty", script{header: header, chunks: []string{emptyChat}})
	u.add("stream", script{chunks: []string{CH("a"), CH("b"), FIN("stop"), DONE}})
	u.add("stream cut", script{chunks: []string{CH("a")}, end: cut})
	return &claims{stack: s, t: t, u: u, c: newClient(t, w.h2)}
}

// ask sends the row's own payload under its key.
func (x *claims) ask(headers ...string) answer { return x.askFor(x.key, headers...) }

// askFor sends a payload under the row's key, to a host whose name all replicas share, for it is part of a key.
func (x *claims) askFor(text string, headers ...string) answer {
	return x.askAs(x.t.Context(), text, headers...)
}

func (x *claims) askAs(ctx context.Context, text string, headers ...string) answer {
	body := `{"model":"big","messages":[{"role":"user","content":"` + text + `"}]}`
	return x.postAs(ctx, x.c, chatPath, body, append([]string{"host", "llm.test", "authorization", "Bearer tenant-a", "idempotency-key", x.key}, headers...)...)
}

// askSlowly asks in a goroutine for an answer that takes a while, and returns when it is in flight.
func (x *claims) askSlowly() <-chan answer {
	ch := make(chan answer, 1)
	go func() { ch <- x.ask("x-script", "slow") }()
	x.waitInflight("full", 1, 0)
	return ch
}

// wantRun wants an answer of the upstream's own, wantReplay one that was given before.
func (x *claims) wantRun(what string, a answer) {
	x.t.Helper()
	if a.status != 200 || a.body != wholeChat || a.header.Get("x-brownout-source") != "upstream" || a.header.Get("idempotent-replayed") != "" {
		x.t.Errorf("%s: %s, want an answer of the upstream", what, a)
	}
}

func (x *claims) wantReplay(what string, a answer) {
	x.t.Helper()
	if a.status != 200 || a.body != wholeChat || a.header.Get("x-brownout-source") != "replay" || a.header.Get("idempotent-replayed") != "true" {
		x.t.Errorf("%s: %s, want a replay", what, a)
	}
}

// wantError wants an error of ours about the key.
func (x *claims) wantError(what string, a answer, status int, reason string) {
	x.t.Helper()
	if a.status != status || a.reason() != reason || !strings.Contains(a.body, `"error":{`) {
		x.t.Errorf("%s: %s, want %d %s in the dialect's shape", what, a, status, reason)
	}
}

// wantCalls wants so many calls of the upstream since before.
func (x *claims) wantCalls(before, want int) {
	x.t.Helper()
	if n := x.u.total() - before; n != want {
		x.t.Errorf("%d calls upstream, want %d", n, want)
	}
}

// claimRows are the states of a key that need no store of their own.
var claimRows = []struct {
	name  string
	calls int
	run   func(x *claims)
}{
	{"first, then again", 1, func(x *claims) {
		x.wantRun("first", x.ask("x-script", "fast"))
		x.wantReplay("again", x.ask("x-script", "fast"))
		key := x.key
		x.key = `"` + key + `"`
		x.wantReplay("a third time, in quotes", x.askFor(key, "x-script", "fast"))
	}},
	{"many, each again at once", 200, func(x *claims) {
		name, early := x.key, 0
		for i := range 200 {
			x.key = name + "-" + strconv.Itoa(i)
			x.wantRun("first", x.ask("x-script", "fast"))
			again := x.ask("x-script", "fast")
			if again.status == 409 {
				early++
				continue
			}
			x.wantReplay("again", again)
		}
		if early > 0 {
			x.t.Errorf("%d of 200 came back before their answer was stored, and met a 409", early)
		}
	}},
	{"another payload", 1, func(x *claims) {
		x.wantRun("first", x.ask("x-script", "fast"))
		x.wantError("another payload", x.askFor("another", "x-script", "fast"), 422, "payload_mismatch")
	}},
	{"malformed", 0, func(x *claims) {
		for what, lines := range map[string][]string{"empty": {""}, "empty string": {`""`}, "300 characters": {strings.Repeat("x", 300)}, "open string": {`"abc`},
			"not ASCII": {"schlüssel"}, "a list": {"a, b"}, "two lines": {"a", "b"}} {
			headers := []string{"x-script", "fast"}
			for _, l := range lines {
				headers = append(headers, "idempotency-key", l)
			}
			x.wantError(what, x.postAs(x.t.Context(), x.c, chatPath, `{"model":"m"}`, headers...), 400, "idempotency_key")
		}
	}},
	{"another tenant, another path", 3, func(x *claims) {
		x.wantRun("first", x.ask("x-script", "fast"))
		x.wantRun("another tenant", x.ask("x-script", "fast", "x-api-key", "tenant-b"))
		x.wantRun("another path", x.postAs(x.t.Context(), x.c, "/v1/other/chat/completions", `{"model":"m"}`, "authorization", "Bearer tenant-a", "idempotency-key", x.key, "x-script", "fast"))
	}},
	{"in flight here", 1, func(x *claims) {
		first := x.askSlowly()
		x.wantReplay("joined", x.ask("x-script", "slow"))
		x.wantRun("first", <-first)
	}},
	{"in flight here, and no time to wait for it", 1, func(x *claims) {
		first := x.askSlowly()
		late := x.ask("x-script", "slow", "x-budget-ms", "200")
		x.wantError("at its deadline", late, 409, "in_flight")
		checkHeader(x.t, late, "retry-after", "1")
		x.wantRun("first", <-first)
	}},
	{"a stream", 1, func(x *claims) {
		body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + x.key + `"}]}`
		first := x.chatBody(x.c, body, "x-script", "stream", "idempotency-key", x.key)
		again := x.chatBody(x.c, body, "x-script", "stream", "idempotency-key", x.key)
		if whole := CH("a") + CH("b") + FIN("stop") + DONE; first.body != whole || again.body != whole || again.header.Get("idempotent-replayed") != "true" {
			x.t.Errorf("first %s\nagain %s", first, again)
		}
	}},
	{"failed: 500", 2, func(x *claims) { x.wantReleased(500, "x-script", "500") }},
	{"failed: 429", 2, func(x *claims) { x.wantReleased(429, "x-script", "429") }},
	{"failed: cut", 2, func(x *claims) { x.wantReleased(502, "x-script", "cut") }},
	{"failed: deadline", 2, func(x *claims) { x.wantReleased(504, "x-script", "hang", "x-budget-ms", "300") }},
	{"failed: empty", 2, func(x *claims) { x.wantReleased(200, "x-script", "empty") }},
	{"failed: a stream cut", 2, func(x *claims) { x.wantReleased(200, "x-script", "stream cut") }},
	{"failed: shed", 1, func(x *claims) { x.wantReleased(503, "x-script", "fast", "x-budget-ms", "0") }},
	{"failed: the caller left", 2, func(x *claims) {
		ctx, leave := context.WithCancel(x.t.Context())
		gone := make(chan answer, 1)
		go func() { gone <- x.askAs(ctx, x.key, "x-script", "hang") }()
		x.waitInflight("full", 1, 0)
		leave()
		<-gone
		x.waitInflight("full", 0, 0)
		x.wantRun("the next", x.ask("x-script", "fast"))
	}},
	{"its time is over", 2, func(x *claims) {
		brief := func() answer {
			return x.postAs(x.t.Context(), x.c, "/brief/chat/completions", `{"model":"m"}`, "authorization", "Bearer tenant-a", "idempotency-key", x.key, "x-script", "fast")
		}
		x.wantRun("first", brief())
		x.wantReplay("again", brief())
		var last answer
		testkit.Eventually(x.t, 5*time.Second, func() bool { last = brief(); return last.header.Get("x-brownout-source") == "upstream" }, "it replays for ever")
		x.wantRun("after its time", last)
	}},
}

// wantReleased wants a failure with a status, after which the same request runs and its answer is kept.
func (x *claims) wantReleased(status int, headers ...string) {
	x.t.Helper()
	if a := x.ask(headers...); a.status != status {
		x.t.Errorf("%s, want status %d", a, status)
	}
	x.wantRun("the next", x.ask("x-script", "fast"))
	before := x.u.total()
	x.wantReplay("the one after that", x.ask("x-script", "fast"))
	x.wantCalls(before, 0)
}

// TestTheStatesOfAnIdempotencyKey on both stores. A caller who comes back at once finds the state it left behind.
func TestTheStatesOfAnIdempotencyKey(t *testing.T) {
	for _, kind := range storeKinds() {
		for _, w := range []wire{wires[0], wires[3]} {
			t.Run(kind.name+", "+w.name, func(t *testing.T) {
				x := startClaims(t, kind.policy(t), w)
				for _, row := range claimRows {
					t.Run(row.name, func(t *testing.T) {
						x := *x
						x.t, x.key = t, strings.ReplaceAll(strings.NewReplacer(",", "", ":", "").Replace(row.name), " ", "-")
						before := x.u.total()
						row.run(&x)
						x.wantCalls(before, row.calls)
					})
				}
				x.checkBooksWithAborts()
			})
		}
	}
}

// TestAKeyInFlightOnAnotherReplica is a 409 that SDKs repeat; once it is done there, it replays here.
func TestAKeyInFlightOnAnotherReplica(t *testing.T) {
	store := redisPolicy(t, testkit.StartRedis(t, testkit.RedisOptions{Password: redisPassword}).Addr)
	here, there := startClaims(t, store, wires[0]), startClaims(t, store, wires[3])
	here.key, there.key = "shared", "shared"
	first := there.askSlowly()
	a := here.ask("x-script", "fast")
	here.wantError("in flight there", a, 409, "in_flight")
	checkHeader(t, a, "retry-after", "1")
	here.wantError("another payload", here.askFor("other", "x-script", "fast"), 422, "payload_mismatch")
	there.wantRun("there", <-first)
	testkit.Eventually(t, 5*time.Second, func() bool { a = here.ask("x-script", "fast"); return a.status != 409 }, "in flight for ever")
	here.wantReplay("done there", a)
	here.wantError("another payload afterwards", here.askFor("other", "x-script", "fast"), 422, "payload_mismatch")
	here.wantCalls(0, 0)
	there.wantCalls(0, 1)
	here.checkBooks()
	there.checkBooks()
}

// TestAKeyOutlivesThePluginWhereItsStoreDoes: Redis replays after a kill; a memory begins anew.
func TestAKeyOutlivesThePluginWhereItsStoreDoes(t *testing.T) {
	for _, kind := range storeKinds() {
		t.Run(kind.name, func(t *testing.T) {
			x := startClaims(t, kind.policy(t), wires[3])
			x.key = "kept"
			x.wantRun("first", x.ask("x-script", "fast"))
			x.wantReplay("again", x.ask("x-script", "fast"))
			x.restart(x.c)
			if a := x.ask("x-script", "fast"); kind.name == "redis" {
				x.wantReplay("after the restart", a)
				x.wantCalls(0, 1)
			} else {
				x.wantRun("after the restart", a)
				x.wantCalls(0, 2)
			}
		})
	}
}

// TestThePluginDiesBetweenTheAnswerAndTheStore: the claim of the dead lapses, and the next one runs.
func TestThePluginDiesBetweenTheAnswerAndTheStore(t *testing.T) {
	redis := testkit.StartRedis(t, testkit.RedisOptions{Password: redisPassword})
	way := startGate(t, redis.Addr)
	x := startClaims(t, redisPolicy(t, way.addr), wires[0])
	x.key = "orphan"
	first := x.askSlowly()
	way.closed.Store(true)
	x.wantRun("first", <-first)
	x.brownout.Kill()
	died := time.Now()
	way.closed.Store(false)
	x.restart(x.c)
	before := x.u.total()
	a := x.ask("x-script", "fast")
	x.wantError("while the lease runs", a, 409, "in_flight")
	testkit.Eventually(t, 20*time.Second, func() bool { a = x.ask("x-script", "fast"); return a.status != 409 }, "the lease never lapses")
	t.Logf("the key of the dead was free %s after its death", time.Since(died).Round(10*time.Millisecond))
	x.wantRun("after the lease", a)
	x.wantReplay("and again", x.ask("x-script", "fast"))
	x.wantCalls(before, 1)
	if d := time.Since(died); d > 12*time.Second {
		t.Errorf("that took %s, want the lease of 10 s and little more", d)
	}
}

// TestSDKIdempotencyOption: openai-python's own option sends the key, and its own retries sit out a 409.
func TestSDKIdempotencyOption(t *testing.T) {
	python := getSDK(t, "python")
	store := redisPolicy(t, testkit.StartRedis(t, testkit.RedisOptions{Password: redisPassword}).Addr)
	here, there := startClaims(t, store, wires[0]), startClaims(t, store, wires[0])
	base := func(x *claims) string { return strings.TrimSuffix(x.envoy.URL("/"), "/") }
	out, err := exec.Command(python, filepath.Join(testkit.RepoRoot(t), "e2e", "sdk", "python", "idempotency.py"), base(here), base(there)).Output()
	if err != nil {
		t.Fatalf("idempotency.py: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	var seen struct {
		Twice     []string
		Elsewhere string
		Seconds   float64
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	t.Logf("twice %q, while in flight elsewhere %q after %.2f s", seen.Twice, seen.Elsewhere, seen.Seconds)
	if len(seen.Twice) != 2 || seen.Twice[0] != "four" || seen.Twice[1] != "four" || seen.Elsewhere != "four" {
		t.Errorf("answers %+v", seen)
	}
	if n := here.metric("brownout_replay_total", "result", "hit"); n != 1 {
		t.Errorf("here: %d replays, want 1", n)
	}
	if n, c := there.metric("brownout_replay_total", "result", "hit"), there.metric("brownout_replay_total", "result", "conflict"); n != 1 || c == 0 {
		t.Errorf("there: %d replays after %d conflicts, want 1 after some", n, c)
	}
	here.wantCalls(0, 2)
	there.wantCalls(0, 0)
}
