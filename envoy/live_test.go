package envoy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/envoy-brownout/brownout/internal/testkit"
	"github.com/envoy-brownout/brownout/policy"
)

// livePolicy has one tier that rewrites and one route each with and without retries.
const livePolicy = `version: 1
tiers:
  full: {model: {concurrency: 20, queue: 8, rewrite: {path: /large, headers: {x-pool: "100% large"}}}}
  small: {model: {concurrency: 20, queue: 8, rewrite: {model: llama}}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1}}
  ladder: [full, small]
  retry: {retries: 1}
- name: whole
  match: {path: {exact: /whole}}
  ladder: [full]
- name: moved
  match: {path: {prefix: /moved}}
  ladder: [small]
`

// live is a real Envoy on a rendered configuration, without a plugin.
type live struct {
	t     *testing.T
	envoy *testkit.Envoy
}

// startLive starts one. With asPlugin the front listener lets in what only the plugin sets, so that a request can
// stand for one that the plugin has admitted.
func startLive(t *testing.T, upstream http.Handler, seal string, asPlugin bool) *live {
	t.Helper()
	s, problems := policy.Parse("live", []byte(livePolicy))
	if s == nil {
		t.Fatal(problems)
	}
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	o := Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Seal: seal, Inner: "unix:" + testkit.SocketDir(t) + "/inner.sock",
		Processor: "unix:" + testkit.SocketDir(t) + "/nobody.sock", Internal: []string{"127.0.0.0/8"}}
	for _, tier := range []string{"full", "small"} {
		u, err := ParseUpstream(tier + "=" + server.URL)
		if err != nil {
			t.Fatal(err)
		}
		o.Upstreams = append(o.Upstreams, u)
	}
	if testkit.EnvoyBefore(t, 1, 37) {
		o.EnvoyVersion = "1.36"
	}
	config := bootstrap(t, s, o)
	if asPlugin {
		for _, name := range []string{RetryOnHeader, MaxRetriesHeader, tierHeader} {
			config = bytes.Replace(config, []byte("- remove: "+name+"\n"), []byte("- remove: x-nothing\n"), 1)
		}
		config = bytes.Replace(config, []byte("prefix: x-brownout-\n"), []byte("prefix: x-nothing-\n"), 1)
	}
	return &live{t, testkit.StartEnvoy(t, testkit.EnvoyConfig{Bootstrap: config})}
}

// post sends a request with pairs of header names and values and returns the answer's status and body.
func (l *live) post(path string, headers ...string) (int, string) {
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, "http://"+l.envoy.Addr+path, strings.NewReader(`{"a":1}`))
	if err != nil {
		return 0, err.Error()
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// admitted are the headers of a request that may be repeated.
func admitted(more ...string) []string {
	return append([]string{tierHeader, "full", RetryOnHeader, RetryOn, MaxRetriesHeader, MaxRetries}, more...)
}

// flaky breaks, refuses or answers as the path says, the first time or always, and counts.
type flaky struct{ calls atomic.Int32 }

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first := f.calls.Add(1) == 1
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != `{"a":1}` {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/resets"), strings.HasSuffix(r.URL.Path, "/resets-once") && first:
		panic(http.ErrAbortHandler)
	case strings.HasSuffix(r.URL.Path, "/busy"):
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasSuffix(r.URL.Path, "/throttled"):
		w.WriteHeader(http.StatusTooManyRequests)
	case strings.HasSuffix(r.URL.Path, "/forged"):
		w.Header().Set(SealHeader, SealUnreachable)
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasSuffix(r.URL.Path, "/cut"):
		w.Header().Set("content-length", "100")
		_, _ = w.Write([]byte("a part"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestEnvoyRepeatsWhatThePluginAllowsAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name, path string
		asPlugin   bool
		headers    []string
		calls      int32
		status     int
	}{
		{"a reset", "/v1/resets-once", true, admitted(), 2, 200},
		{"a reset, again", "/v1/resets", true, admitted(), 2, 503},
		{"a 503", "/v1/busy", true, admitted(), 1, 503},
		{"a 429", "/v1/throttled", true, admitted(), 1, 429},
		{"a forged mark of the seal", "/v1/forged", true, admitted(), 1, 503},
		{"a cut body", "/v1/cut", true, admitted(), 1, 0},
		{"a reset that the plugin does not allow", "/v1/resets", true, []string{tierHeader, "full"}, 1, 503},
		{"a reset while the plugin is away", "/v1/resets", true, nil, 1, 503},
		{"a reset that a caller wants repeated", "/v1/resets", false, admitted(), 1, 503},
		{"a 503 that a caller wants repeated", "/v1/busy", false, []string{RetryOnHeader, "5xx", MaxRetriesHeader, "9"}, 1, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := new(flaky)
			l := startLive(t, f, "none", c.asPlugin)
			status, body := l.post(c.path, c.headers...)
			if calls := f.calls.Load(); status != c.status || calls != c.calls {
				t.Errorf("status %d after %d calls (%s), want %d after %d", status, calls, body, c.status, c.calls)
			}
		})
	}
}

func TestBehindTheSealAnAnswerForNoneIsRepeated(t *testing.T) {
	var calls atomic.Int32
	seal := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 || r.URL.Path == "/v1/dead" {
			w.Header().Set(SealHeader, SealUnreachable)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path == "/v1/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	seal.Config.Protocols = new(http.Protocols)
	seal.Config.Protocols.SetUnencryptedHTTP2(true)
	seal.Start()
	t.Cleanup(seal.Close)
	l := startLive(t, new(flaky), strings.TrimPrefix(seal.URL, "http://"), true)
	for _, c := range []struct {
		path    string
		headers []string
		calls   int32
		status  int
	}{
		{"/v1/once", admitted(SealHeader, SealOn), 2, 200},
		{"/v1/busy", admitted(SealHeader, SealOn), 1, 503},
		{"/v1/dead", admitted(SealHeader, SealOn), 2, 503},
		{"/v1/dead", []string{tierHeader, "full", SealHeader, SealOn}, 1, 503},
	} {
		before := calls.Load()
		status, body := l.post(c.path, c.headers...)
		if n := calls.Load() - before; status != c.status || n != c.calls {
			t.Errorf("%s: status %d after %d calls (%s), want %d after %d", c.path, status, n, body, c.status, c.calls)
		}
	}
}

func TestWhileEverythingBreaksRetriesStayWithinTheirBudget(t *testing.T) {
	const requests = 10 // a fifth of them is less than what is always allowed
	var first, again atomic.Int32
	together, release := make(chan struct{}), make(chan struct{})
	l := startLive(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := first.Add(1); n <= requests {
			if n == requests {
				close(together)
			}
			<-together
			panic(http.ErrAbortHandler)
		}
		again.Add(1)
		<-release
	}), "none", true)
	answers := make(chan int, requests)
	for range requests {
		go func() {
			status, _ := l.post("/v1/x", admitted()...)
			answers <- status
		}()
	}
	for range requests - retryAlways {
		if status := <-answers; status != 503 {
			t.Errorf("status %d above the budget, want 503", status)
		}
	}
	close(release)
	for range retryAlways {
		if status := <-answers; status != 200 {
			t.Errorf("status %d within the budget, want 200", status)
		}
	}
	if n := again.Load(); n != retryAlways {
		t.Errorf("%d retries, want %d", n, retryAlways)
	}
}

func TestWhatThePluginHasMovedIsRoutedByNameAndTheRestByPath(t *testing.T) {
	l := startLive(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s pool=%q named=%q retry=%q", r.URL, r.Header.Get("x-pool"), r.Header.Get(RouteHeader), r.Header.Get(RetryOnHeader))
	}), "none", true)
	for _, c := range []struct {
		what, path string
		headers    []string
		want       string
	}{
		{"moved by the plugin", "/moved/x?q=1", admitted(RouteHeader, "chat"), `/moved/x?q=1 pool="" named="" retry=""`},
		{"the name alone", "/v1/x", []string{RouteHeader, "chat"}, `/large/x pool="100% large" named="" retry=""`},
		{"the plugin is away", "/v1/x?q=1", nil, `/large/x?q=1 pool="100% large" named="" retry=""`},
		{"the plugin is away, the whole path", "/whole?q=1", nil, `/large?q=1 pool="100% large" named="" retry=""`},
		{"a tier whose path is kept", "/v1/x", []string{tierHeader, "small"}, `/v1/x pool="" named="" retry=""`},
	} {
		status, body := l.post(c.path, c.headers...)
		if status != 200 || body != c.want {
			t.Errorf("%s: status %d, %s, want %s", c.what, status, body, c.want)
		}
	}
}
