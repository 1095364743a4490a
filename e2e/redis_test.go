package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

const (
	redisCallers = 8                     // ask at the same time
	redisPace    = 20 * time.Millisecond // between the requests of one
	redisUp      = 2 * time.Second       // before the server is killed, and again after it is back
	redisAway    = 3 * time.Second
	storeTimeout = 20 * time.Millisecond // of the policy, by default
	busyMachine  = 60 * time.Millisecond // what two shared cores may add at the 99th percentile
)

// TestRedisKilledUnderLoad: callers notice nothing but some milliseconds, and what the server had confirmed it replays
// after kill -9.
func TestRedisKilledUnderLoad(t *testing.T) {
	redis := testkit.StartRedis(t, testkit.RedisOptions{AppendOnly: true, Password: redisPassword})
	x := startClaims(t, redisPolicy(t, redis.Addr), wires[3])
	x.c = newClient(t, true)
	load := &redisLoad{x: x, took: map[string][]time.Duration{}, conflicts: map[string]int{}}
	load.phase.Store("up")
	stop := load.start()
	pause(redisUp)
	load.phase.Store("down")
	redis.Kill()
	pause(redisAway)
	redis.Restart()
	x.waitLog("store is back")
	load.phase.Store("back")
	pause(redisUp)
	stop()
	load.report(t)
	if lost := load.lost(); len(lost) > 0 {
		t.Errorf("%d of %d confirmed answers are lost: %v", len(lost), len(load.confirmed), lost[:min(5, len(lost))])
	}
	x.checkStoreLog()
	x.checkBooks()
}

// redisLoad is what callers met while Redis came and went.
type redisLoad struct {
	x     *claims
	phase atomic.Value // string: how Redis is

	mu        sync.Mutex // guards the fields below
	took      map[string][]time.Duration
	failed    []answer
	conflicts map[string]int
	confirmed []string // keys whose answer Redis replayed before it was killed: it had confirmed them
}

// start begins the load and returns what ends it and waits for it.
func (l *redisLoad) start() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range redisCallers {
		wg.Go(func() {
			tick := time.NewTicker(redisPace)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				l.ask(fmt.Sprintf("key-%d-%d", i, n))
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// ask sends one request under a key of its own, and the same again, twice: the second may have joined the first in this
// process, the third has its answer of Redis.
func (l *redisLoad) ask(key string) {
	x := *l.x
	x.key = key
	phase := l.phase.Load().(string)
	first, again := x.ask("x-script", "fast"), x.ask("x-script", "fast")
	kept := phase == "up" && x.ask("x-script", "fast").header.Get("idempotent-replayed") == "true"
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[phase] = append(l.took[phase], first.took)
	if first.status != 200 || first.body != wholeChat {
		l.failed = append(l.failed, first)
	}
	switch {
	case again.status == http.StatusConflict:
		l.conflicts[phase]++
	case again.status != 200 || again.body != wholeChat:
		l.failed = append(l.failed, again)
	case kept:
		l.confirmed = append(l.confirmed, key)
	}
}

// report prints what was met, and holds it to what is promised.
func (l *redisLoad) report(t *testing.T) {
	t.Helper()
	for _, phase := range []string{"up", "down", "back"} {
		took := l.took[phase]
		if len(took) < 100 {
			t.Fatalf("%d requests while Redis was %s: too few", len(took), phase)
		}
		t.Logf("redis %-4s %4d requests: p50 %v, p99 %v, max %v", phase, len(took), percentile(took, 50).Round(10*time.Microsecond),
			percentile(took, 99).Round(10*time.Microsecond), slices.Max(took).Round(10*time.Microsecond))
		if p99, up := percentile(took, 99), percentile(l.took["up"], 99); p99 > up+storeTimeout+busyMachine {
			t.Errorf("%s: p99 %v, want at most %v and %v more than the %v with Redis up", phase, p99, storeTimeout, busyMachine, up)
		}
	}
	failures := l.x.metric("brownout_store_failures_total")
	t.Logf("%d failures of callers, repeats at once that met a 409: %v, %d failures of the store counted, %d answers confirmed before the kill",
		len(l.failed), l.conflicts, failures, len(l.confirmed))
	if len(l.failed) > 0 {
		t.Errorf("a caller failed: %s", l.failed[0])
	}
	if failures == 0 || len(l.confirmed) < 100 {
		t.Error("want failures of the store counted, and 100 confirmed answers")
	}
}

// lost are the confirmed keys that do not replay now.
func (l *redisLoad) lost() (keys []string) {
	x := *l.x
	for _, x.key = range l.confirmed {
		if a := x.ask("x-script", "500"); a.status != 200 || a.body != wholeChat || a.header.Get("idempotent-replayed") != "true" {
			keys = append(keys, x.key)
		}
	}
	return keys
}

// waitLog waits until brownout's log has a message.
func (s *stack) waitLog(msg string) {
	s.t.Helper()
	testkit.Eventually(s.t, 10*time.Second, func() bool { return strings.Contains(s.brownout.Log(), `"msg":"`+msg) }, "brownout never logged "+msg)
}

// checkStoreLog wants failures of the store in the log, once a second at most.
func (s *stack) checkStoreLog() {
	s.t.Helper()
	var last time.Time
	lines := 0
	for line := range strings.Lines(s.brownout.Log()) {
		var l struct {
			Time time.Time
			Msg  string
		}
		if json.Unmarshal([]byte(line), &l) != nil || !strings.HasPrefix(l.Msg, "store failed") {
			continue
		}
		if d := l.Time.Sub(last); d < 990*time.Millisecond {
			s.t.Errorf("logged %v after the line before: %s", d, line)
		}
		last = l.Time
		lines++
	}
	s.t.Logf("%d lines of the log are about the store's failures", lines)
	if lines == 0 {
		s.t.Error("the log says nothing of the store's failures")
	}
}

// TestASlowRedis stops the server with its connections open: some requests wait for it until its timeout, then none does.
func TestASlowRedis(t *testing.T) {
	for name, route := range map[string]string{"idempotency": "idempotency: {ttl: 1h}", "cache": "cache: {ttl: 1h}", "both": "idempotency: {ttl: 1h}, cache: {ttl: 1h}"} {
		t.Run(name, func(t *testing.T) {
			redis := testkit.StartRedis(t, testkit.RedisOptions{Password: redisPassword})
			policy := "version: 1\ntiers: {full: {model: {concurrency: 64, queue: 100}}}\nroutes:\n- {name: chat, match: {path: {prefix: /v1}}, ladder: [full], " + route + "}\n"
			s, u := startReplays(t, stackOptions{policy: policy + redisPolicy(t, redis.Addr)})
			x := &claims{stack: s, t: t, u: u, c: newClient(t, false)}
			usual := x.timed("before", 40)
			redis.Pause()
			stopped := x.timed("stopped", 40)
			redis.Resume()
			x.waitLog("store is back")
			again := x.timed("after", 40)
			x.wantReplay("the last one again", x.ask("x-script", "fast"))
			t.Logf("first ten while stopped: %v", rounded(stopped[:10]))
			t.Logf("p50, max before %v; stopped %v; after %v", twoOf(usual), twoOf(stopped), twoOf(again))
			median, slow := percentile(slices.Clone(usual), 50), 0
			for _, d := range stopped {
				if d > median+storeTimeout*3/4 {
					slow++
				}
			}
			if d := min(stopped[0], stopped[1]); d > median+storeTimeout*3/2 {
				t.Errorf("the first two took %v and more, want the timeout of %v once, and the usual %v", d, storeTimeout, median)
			}
			if slow == 0 || slow > 7 {
				t.Errorf("%d requests waited for a store that does not answer, want the first five and no more", slow)
			}
			if n := s.metric("brownout_store_failures_total"); n < 5 {
				t.Errorf("%d failures counted", n)
			}
			s.checkStoreLog()
			s.checkBooks()
		})
	}
}

// timed asks n different questions one after the other and returns how long each took.
func (x *claims) timed(name string, n int) []time.Duration {
	x.t.Helper()
	took := make([]time.Duration, n)
	for i := range n {
		x.key = fmt.Sprintf("%s-%d", name, i)
		a := x.ask("x-script", "fast")
		x.wantRun(x.key, a)
		took[i] = a.took
	}
	return took
}

func rounded(d []time.Duration) []time.Duration {
	out := slices.Clone(d)
	for i := range out {
		out[i] = out[i].Round(100 * time.Microsecond)
	}
	return out
}

// twoOf are the median and the most of times, whose order stays.
func twoOf(d []time.Duration) []time.Duration {
	return rounded([]time.Duration{percentile(slices.Clone(d), 50), slices.Max(d)})
}
