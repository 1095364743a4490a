package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

const openAndClosed = `version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
- name: strict
  match: {method: POST, path: {prefix: /v1/strict}}
  ladder: [full]
  failure: closed
- name: unsealed
  match: {method: POST, path: {prefix: /v1/unsealed}}
  ladder: [full]
  stream: {seal: false}
`

const (
	strictPath   = "/v1/strict"
	unsealedPath = "/v1/unsealed"
)

// TestBrownoutKilledAndRestarted: whoever comes while brownout is away is served or refused as the policy says. A running
// request whose body is not watched goes on; one that is watched breaks off, for nobody can vouch for its end.
func TestBrownoutKilledAndRestarted(t *testing.T) {
	onEveryWireNoBooks(t, stackOptions{policy: openAndClosed, stub: stub.Config{Latency: latency(t, "10ms")}}, func(t *testing.T, s *stack, c *http.Client) {
		for _, path := range []string{chatPath, strictPath} {
			if a := s.send(t.Context(), c, path); a.status != 200 || a.header.Get("x-brownout-source") != "upstream" {
				t.Fatalf("before: %s: %v", path, a)
			}
		}
		unsealed := s.background(c, unsealedPath, "x-stub-latency", "600ms")
		sealed := s.background(c, chatPath, "x-stub-latency", "600ms")
		s.waitInflight("full", 2, 0)
		s.brownout.Kill()
		if a := <-unsealed; a.status != 200 || a.err != nil {
			t.Errorf("the running request on the fail-open route: %v, want its answer", a)
		}
		if a := <-sealed; a.err != nil || a.status < 500 || a.header.Get("x-brownout-source") != "" {
			t.Errorf("the running request whose seal died: %v, want Envoy's own 503, or its 500 if it missed the processor first", a)
		}
		for range 5 {
			if a := s.send(t.Context(), c, chatPath); a.status != 200 || a.header.Get("x-brownout-source") != "" {
				t.Errorf("away, fail open: %v, want the upstream's answer unlabelled", a)
			}
			if a := s.send(t.Context(), c, strictPath); a.status != 503 || a.took > time.Second {
				t.Errorf("away, fail closed: %v, want 503", a)
			}
		}
		s.startBrownout()
		back := time.Now()
		testkit.Eventually(t, 5*time.Second, func() bool {
			return s.send(t.Context(), c, strictPath).status == 200 &&
				s.send(t.Context(), c, chatPath).header.Get("x-brownout-source") == "upstream"
		}, "not served after the restart")
		if d := time.Since(back); d > time.Second {
			t.Errorf("served again %s after the restart, want within a second", d)
		}
	})
}

// TestAStreamWhoseBrownoutDiesDoesNotLookWhole: its body travels through brownout, whatever the route says of failure.
func TestAStreamWhoseBrownoutDiesDoesNotLookWhole(t *testing.T) {
	onEveryWireNoBooks(t, stackOptions{policy: openAndClosed}, func(t *testing.T, s *stack, c *http.Client) {
		var streams []<-chan answer
		for _, path := range []string{chatPath, strictPath, unsealedPath} {
			streams = append(streams, s.background(c, path, "x-stub-mode", "stream", "x-stub-chunks", "10", "x-stub-gap", "100ms", "x-budget-ms", "5000"))
		}
		testkit.Eventually(t, 5*time.Second, func() bool { return s.metric("brownout_inflight") == 3 && s.stub.Stats().Inflight == 3 }, "three streams never ran")
		<-time.NewTimer(300 * time.Millisecond).C // some events have gone on by then
		s.brownout.Kill()
		for i, ch := range streams {
			if a := <-ch; a.err == nil || a.status != 200 || !strings.Contains(a.body, "word0") {
				t.Errorf("stream %d: %v, want some of it and a cut that shows", i, a)
			}
		}
	})
}

// onEveryWireNoBooks is onEveryWire for tests in which brownout loses its counters.
func onEveryWireNoBooks(t *testing.T, o stackOptions, test func(t *testing.T, s *stack, c *http.Client)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			o := o
			o.scheme = w.upstream
			test(t, startStack(t, o), newClient(t, w.h2))
		})
	}
}

func TestSIGTERMLetsRunningAndQueuedRequestsEnd(t *testing.T) {
	s := startStack(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "300ms")}, serve: []string{"--grace", "5s"}})
	c := newClient(t, false)
	first := s.background(c, chatPath)
	s.waitInflight("full", 1, 0)
	second := s.background(c, chatPath)
	s.waitInflight("full", 1, 1)
	s.brownout.Signal(syscall.SIGTERM)
	for i, ch := range []<-chan answer{first, second} {
		if a := <-ch; a.status != 200 || a.header.Get("x-brownout-source") != "upstream" {
			t.Errorf("request %d: %v, want it served while draining", i+1, a)
		}
	}
	if code := s.brownout.Wait(5 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestSIGTERMRefusesWhatIsLeftBeforeTheGraceEnds(t *testing.T) {
	s := startStack(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "1800ms")}, serve: []string{"--grace", "2s"}})
	c := newClient(t, false)
	first := s.background(c, chatPath)
	s.waitInflight("full", 1, 0)
	second := s.background(c, chatPath)
	s.waitInflight("full", 1, 1)
	s.brownout.Signal(syscall.SIGTERM)
	if a := <-second; a.status != 503 || a.reason() != "shutting_down" || a.took < 900*time.Millisecond {
		t.Errorf("queued: %v, want shutting_down one second before the end", a)
	}
	if a := <-first; a.status != 200 {
		t.Errorf("running: %v, want its answer", a)
	}
	if code := s.brownout.Wait(5 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// configMap lays a file out as Kubernetes does: path → ..data/policy.yaml, ..data → a dated folder, swapped whole.
type configMap struct {
	t   *testing.T
	dir string
	n   int
}

func (c *configMap) path() string { return filepath.Join(c.dir, "policy.yaml") }

func (c *configMap) swap(text string) {
	c.t.Helper()
	c.n++
	folder := fmt.Sprintf("..ts%d", c.n)
	old, _ := os.Readlink(filepath.Join(c.dir, "..data"))
	steps := []func() error{
		func() error { return os.Mkdir(filepath.Join(c.dir, folder), 0o755) },
		func() error { return os.WriteFile(filepath.Join(c.dir, folder, "policy.yaml"), []byte(text), 0o644) },
		func() error { return os.Symlink(folder, filepath.Join(c.dir, "..data_tmp")) },
		func() error { return os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data")) },
	}
	if old == "" {
		steps = append(steps, func() error { return os.Symlink("..data/policy.yaml", c.path()) })
	} else {
		steps = append(steps, func() error { return os.RemoveAll(filepath.Join(c.dir, old)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestFiftyReloadsUnderLoad swaps the policy fifty times, ten of them broken, while clients send without a pause.
func TestFiftyReloadsUnderLoad(t *testing.T) {
	cm := &configMap{t: t, dir: t.TempDir()}
	cm.swap(chatPolicy)
	s := startStack(t, stackOptions{stub: stub.Config{Latency: latency(t, "5ms")}, serve: []string{"--policy", cm.path()}})
	var sent, bad atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	settle := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	defer settle() // also when a step fails
	for range 8 {
		c := newClient(t, false)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				sent.Add(1)
				if a := s.send(t.Context(), c, chatPath); a.status != 200 && a.reason() != "queue_full" {
					bad.Add(1)
					t.Errorf("during reloads: %v", a)
				}
			}
		})
	}
	good, broken, limit := 1, 0, 4
	for i := range 50 {
		result, want := "success", 0
		if i%5 == 4 {
			broken++
			result, want = "error", broken
			cm.swap(fmt.Sprintf("version: 1\ntiers: {full: {model: {concurrency: %d", i)) // cut off
		} else {
			good++
			want, limit = good, 5+i%3 // another than before, each time
			cm.swap(strings.Replace(chatPolicy, "concurrency: 4", fmt.Sprintf("concurrency: %d", limit), 1))
		}
		testkit.Eventually(t, 10*time.Second, func() bool {
			return s.metric("brownout_config_reloads_total", "result", result) == want
		}, fmt.Sprintf("reload %d: no %s counted", i, result))
		if n := s.metric("brownout_limit", "tier", "full"); n != limit {
			t.Errorf("limit %d after reload %d (%s), want %d", n, i, result, limit)
		}
	}
	settle()
	t.Logf("%d requests during 50 reloads, %d failed", sent.Load(), bad.Load())
	if n := s.metric("brownout_config_reloads_total", "result", "error"); n != 10 {
		t.Errorf("%d failed reloads counted, want 10", n)
	}
	if last := s.metric("brownout_config_last_reload_success_timestamp_seconds"); time.Since(time.Unix(int64(last), 0)) > time.Minute {
		t.Errorf("last successful reload at %d", last)
	}
	s.checkBooks()
}
