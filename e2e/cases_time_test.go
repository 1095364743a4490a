package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// caseDeadlineBeforeAndAfterHeaders is C67: before headers a deadline is a 504 in the dialect's shape that says not to
// retry; after them the status stands and the stream ends with the truth.
func caseDeadlineBeforeAndAfterHeaders(t *testing.T, e *caseEnv, id string) {
	var wg sync.WaitGroup
	for path, body := range map[string]string{
		chatURL:     `{"error":{"message":"deadline: deadline","type":"deadline","param":null,"code":"deadline"},"reason":"deadline"}`,
		messagesURL: `{"type":"error","error":{"type":"overloaded_error","message":"deadline: deadline"},"reason":"deadline"}`,
		genericPath: `{"error":"deadline","reason":"deadline"}`,
	} {
		for name, sc := range map[string]script{"before headers": {wait: 5 * time.Second}, "headers are held": {end: hang}, "half an event is held": {chunks: []string{"data: {"}, end: hang}} {
			k, v := e.u.add(id+name, sc)
			wg.Go(func() {
				a := e.post(t, id, path, "{}", k, v, "x-budget-ms", "300")
				if a.status != 504 || a.err != nil || a.body != body || a.took > time.Second {
					t.Errorf("%s, %s: %v, want a 504 with %s", path, name, a, body)
				}
				checkHeader(t, a, "x-should-retry", "false")
				checkHeader(t, a, "x-brownout-source", "deadline")
				checkHeader(t, a, "content-type", "application/json")
			})
		}
	}
	wg.Wait()
	before := e.counted(id, "deadline")
	n := inChunks(CH("a"), func(way string, s script) {
		s.end = hang
		k, v := e.u.add(id+way, s)
		a := e.post(t, id, chatURL, "{}", k, v, "x-budget-ms", "600")
		if a.status != 200 || a.err != nil || a.body != CH("a")+P("deadline") || a.took > 1500*time.Millisecond {
			t.Errorf("%s: after headers: %v", way, a)
		}
	})
	e.outcomes(t, id, "deadline", before, n)
}

// outerEnvoy is a proxy in front with a timeout of its own on every request.
const outerEnvoy = `static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: outer
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes:
              - match: {prefix: /}
                route: {cluster: inner, timeout: %s}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: inner
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: inner
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 0}}
`

// caseRouteTimeoutInFront is C69: another Envoy in front gives its route 1.5 s. On a network we are told to believe, the
// ending comes before that; otherwise the stream would be reset.
func caseRouteTimeoutInFront(t *testing.T, e *caseEnv, id string) {
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: casePolicy(), scheme: e.upstream, upstreamAddr: address(u), internal: []string{"127.0.0.0/8"}})
	_, port := hostPort(t, s.envoy.URL(""))
	front := testkit.StartEnvoy(t, testkit.EnvoyConfig{Bootstrap: fmt.Appendf(nil, outerEnvoy, "1.5s", port)})
	outer := &caseEnv{wire: e.wire, s: &stack{t: t, envoy: front}, u: u, c: e.c}
	var wg sync.WaitGroup
	for name, chunks := range map[string][]string{"frames": {CH("a")}, "bytes": pieces(CH("a"), 1), "halves": {CH("a")[:60], CH("a")[60:]}} {
		long := script{gap: 60 * time.Millisecond}
		if name == "bytes" {
			long.gap = 2 * time.Millisecond
		}
		for len(long.chunks)*int(long.gap) < int(3*time.Second) {
			long.chunks = append(long.chunks, chunks...)
		}
		k, v := u.add(name, long)
		wg.Go(func() {
			a := outer.post(t, id, chatURL, "{}", k, v)
			if a.status != 200 || a.err != nil || !strings.HasSuffix(a.body, "\n\n"+P("deadline")) || a.took < time.Second || a.took > 1500*time.Millisecond {
				t.Errorf("%s: %v, ends in %q", name, a, a.body[max(0, len(a.body)-200):])
			}
		})
	}
	wg.Wait()
	if n := front.Stats("cluster.inner.upstream_rq_timeout"); n != 0 {
		t.Errorf("the route's own timeout ended %d streams", n)
	}
	testkit.Eventually(t, 5*time.Second, func() bool { return s.metric("brownout_requests_total", "outcome", "deadline") == 3 }, "not three deadlines")
}

// caseSteadyStream is C70: steady tokens without a stated budget are never cut by us, however long they take. The default
// budget is 300 ms here and the idle timer 600 ms.
func caseSteadyStream(t *testing.T, e *caseEnv, id string) {
	done := map[string]<-chan answer{}
	want := map[string]string{}
	for name, sc := range map[string]script{
		"frames": {chunks: slices100(partial)[:20], gap: 100 * time.Millisecond},
		"bytes":  {chunks: pieces(strings.Repeat(partial, 20), 1), gap: 2 * time.Millisecond},
		"halves": {chunks: pieces(strings.Repeat(partial, 20), len(partial)/2+1), gap: 60 * time.Millisecond},
	} {
		sc.chunks = append(sc.chunks[:len(sc.chunks):len(sc.chunks)], "data: [DONE]\n\n")
		want[name] = strings.Join(sc.chunks, "")
		k, v := e.u.add(id+name, sc)
		ch := make(chan answer, 1)
		go func() { ch <- e.post(t, id, genericPath, "{}", k, v) }()
		done[name] = ch
	}
	for name, ch := range done {
		if a := <-ch; a.status != 200 || a.err != nil || a.body != want[name] || a.took < time.Second {
			t.Errorf("%s: %v", name, a)
		}
	}
	if n := e.counted(id, "ok"); n != [2]int{3, 3} {
		t.Errorf("%d of %d requests ended as ok", n[1], n[0])
	}
}

// caseEnvoyTimesOutFirst is C71: a timeout of Envoy's that we do not know of is first. Nothing is written after it, the
// books are right, and the caller sees a broken stream, or Envoy's own status before headers.
func caseEnvoyTimesOutFirst(t *testing.T, e *caseEnv, id string) {
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: casePolicy(), scheme: e.upstream, upstreamAddr: address(u), edit: func(config []byte) []byte {
		front, rest, ok := bytes.Cut(config, []byte("name: inner\n"))
		if n := bytes.Count(front, []byte("timeout: 0s\n")); !ok || n < 2*len(caseNumbers()) {
			t.Fatalf("%d routes of the front listener have no timeout", n)
		}
		return bytes.Join([][]byte{bytes.ReplaceAll(front, []byte("timeout: 0s\n"), []byte("timeout: 1.5s\n")), []byte("name: inner\n"), rest}, nil)
	}})
	own := &caseEnv{wire: e.wire, s: s, u: u, c: newClient(t, e.h2)}
	own.c.Transport.(*http.Transport).MaxIdleConnsPerHost = caseCallers
	in := CH("a") + CH("b")
	n := inChunks(in, func(way string, sc script) {
		sc.end = hang
		k, v := u.add(id+way, sc)
		if a := own.post(t, id, chatURL, "{}", k, v); a.err == nil || a.status != 200 || !strings.HasPrefix(in, a.body) || a.took < 1400*time.Millisecond {
			t.Errorf("%s: %v, want what had come and a stream that breaks", way, a)
		}
	})
	own.outcomes(t, id, "client_aborted", [2]int{}, n)
	k, v := u.add(id+"silent", script{wait: 5 * time.Second})
	if a := own.post(t, id, chatURL, "{}", k, v); a.status != 504 || a.header.Get("x-brownout-source") != "envoy" {
		t.Errorf("before headers: %v, want Envoy's own 504", a)
	}
	k, v = u.add(id+"whole", script{chunks: []string{CH("a") + FIN("stop") + DONE}})
	if a := own.post(t, id, chatURL, "{}", k, v); a.status != 200 || a.err != nil || a.body != CH("a")+FIN("stop")+DONE {
		t.Errorf("the next: %v", a)
	}
	if got := s.metric("brownout_terminal_frames_total"); got != 0 {
		t.Errorf("%d endings are counted that nobody got", got)
	}
	s.books()
	own.checkQuiet(t)
}

// caseRemainingIsClamped is C75: the time spent in our queue is taken from what remains, and so is the reserve; where
// nothing remains the upstream is not asked.
func caseRemainingIsClamped(t *testing.T, e *caseEnv, id string) {
	holder, v := e.u.add(id+"holder", script{wait: 250 * time.Millisecond, chunks: []string{CH("a") + FIN("stop") + DONE}})
	quick, w := e.u.add(id+"quick", script{chunks: []string{CH("a") + FIN("stop") + DONE}})
	late, l := e.u.add(id+"late", script{})
	first := make(chan answer, 1)
	go func() { first <- e.post(t, id, chatURL, "{}", holder, v) }()
	e.s.waitInflight("one", 1, 0)
	spent := make(chan answer, 1)
	go func() { spent <- e.post(t, id, chatURL, "{}", late, l, "x-deadline-remaining-ms", "100") }()
	began := time.Now()
	a := e.post(t, id, chatURL, "{}", quick, w, "x-deadline-remaining-ms", "600")
	if a.status != 200 {
		t.Errorf("behind the holder: %v", a)
	}
	if a := <-first; a.status != 200 {
		t.Errorf("the holder: %v", a)
	}
	if a := <-spent; a.status != 503 || a.reason() != "deadline_expired" {
		t.Errorf("with 100 ms behind one of 250 ms: %v", a)
	}
	if n := e.u.count(e.u.calls, l); n != 0 {
		t.Errorf("the upstream was asked %d times for a request without time", n)
	}
	e.u.mu.Lock()
	defer e.u.mu.Unlock()
	left, _ := strconv.Atoi(e.u.seen[w].Get("x-deadline-remaining-ms"))
	if waited := time.Since(began); left <= 0 || left > 570-150 || left < 570-int(waited.Milliseconds())-1 {
		t.Errorf("after up to %s of waiting %d of 570 ms remain", waited, left)
	}
}

// caseBudgetValues is C76: what counts as a budget, what is ignored and counted, what is gone already.
func caseBudgetValues(t *testing.T, e *caseEnv, _ string) {
	s := startStack(t, stackOptions{scheme: e.upstream})
	checkBudgetValues(t, s, newClient(t, e.h2))
	s.checkBooks()
}

// caseSlowFirstToken is C81: a queue inside the upstream shows as slowness, which our own timer ends; what it rejects at
// once is taken at its word.
func caseSlowFirstToken(t *testing.T, e *caseEnv, id string) {
	body := `{"error":{"message":"deadline: slow_first_token","type":"deadline","param":null,"code":"slow_first_token"},"reason":"slow_first_token"}`
	before := e.counted(id, "deadline")
	for name, sc := range map[string]script{"headers late": {wait: 4 * time.Second}, "headers at once": {end: hang}, "half an event": {chunks: []string{CH("a")[:40]}, end: hang}} {
		k, v := e.u.add(id+name, sc)
		if a := e.post(t, id, chatURL, "{}", k, v); a.status != 504 || a.err != nil || a.body != body || a.took > 2*time.Second {
			t.Errorf("%s: %v, want a 504 with %s", name, a, body)
		}
	}
	n := inChunks(roleChunk, func(way string, s script) {
		s.end = hang
		k, v := e.u.add(id+way, s)
		if a := e.post(t, id, chatURL, "{}", k, v); a.status != 200 || a.err != nil || a.body != roleChunk+P("slow_first_token") {
			t.Errorf("a role and then silence: %s: %v", way, a)
		}
	})
	e.outcomes(t, id, "deadline", before, 3+n)
	for status, outcome := range map[int]string{503: "overloaded", 429: "throttled", 529: "overloaded"} {
		before := e.counted(id, outcome)
		k, v := e.u.add(fmt.Sprint(id, status), script{status: status, header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"error":{"message":"busy"}}`}})
		if a := e.post(t, id, chatURL, "{}", k, v); a.status != status || a.body != `{"error":{"message":"busy"}}` {
			t.Errorf("rejected with %d: %v", status, a)
		}
		e.outcomes(t, id, outcome, before, 1)
	}
}

// caseStoppedReader is C82: the caller does not read, so the ending cannot be delivered; at the deadline the slot comes
// back and the outcome is counted all the same. Without one stream.idle does it where there is no seal, for nothing moves,
// as if the upstream were silent; over the seal that is told apart, and the caller may come back.
func caseStoppedReader(t *testing.T, e *caseEnv, id string) {
	chunk := strings.Repeat("data: "+strings.Repeat("x", 4<<10)+"\n\n", 16)
	endless := make([]string, 5000)
	for i := range endless {
		endless[i] = chunk
	}
	before, stalled, aborted := e.counted(id, "deadline"), e.counted(id+"-idle", "stalled"), e.counted(id+"-waits", "client_aborted")
	e.stopReading(t, id+"-idle", id+"idle", endless)
	patient := e.stopReading(t, id+"-waits", id+"waits", endless)
	began := time.Now()
	for name, chunks := range map[string][]string{"whole events": endless, "odd pieces": pieces(strings.Join(endless[:2000], ""), 65_521)} {
		e.stopReading(t, id, id+name, chunks, "x-budget-ms", "800")
	}
	e.outcomes(t, id, "deadline", before, 2)
	if took := time.Since(began); took < 700*time.Millisecond || took > 2*time.Second {
		t.Errorf("the deadlines of 800 ms were counted after %s", took)
	}
	e.outcomes(t, id+"-idle", "stalled", stalled, 1)
	if now := e.counted(id+"-waits", "client_aborted"); now != aborted || patient == nil {
		t.Error("a caller that stopped reading a sealed answer was taken for a silent upstream")
	} else {
		patient.Body.Close()
		e.outcomes(t, id+"-waits", "client_aborted", aborted, 1)
	}
	for _, name := range []string{"whole events", "odd pieces", "idle", "waits"} {
		testkit.Eventually(t, flushTimeout+3*time.Second, func() bool { return e.u.count(e.u.cancelled, id+name) == 1 }, name+": the upstream works on")
	}
}

// stopReading asks for a stream on a connection of its own, reads the beginning, and leaves the rest.
func (e *caseEnv) stopReading(t *testing.T, route, name string, chunks []string, headers ...string) *http.Response {
	t.Helper()
	k, v := e.u.add(name, script{chunks: chunks})
	own := &caseEnv{wire: e.wire, s: e.s, u: e.u, c: newClient(t, e.h2)}
	resp := own.open(t, route, genericPath, append([]string{k, v}, headers...)...)
	if resp == nil {
		return nil
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if _, err := io.ReadFull(resp.Body, make([]byte, 1<<10)); err != nil {
		t.Error(err)
	}
	return resp
}
