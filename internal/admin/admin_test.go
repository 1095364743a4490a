package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// call is one request and what came of it.
func call(t *testing.T, h http.Handler, method, path string) (status int, contentType, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	r := w.Result()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header.Get("content-type"), string(b)
}

func expect(t *testing.T, h http.Handler, method, path string, status int, body string) {
	t.Helper()
	gotStatus, _, gotBody := call(t, h, method, path)
	if gotStatus != status || !strings.Contains(gotBody, body) {
		t.Errorf("%s %s: %d %q, want %d %q", method, path, gotStatus, gotBody, status, body)
	}
}

func TestReadinessFollowsTheProcess(t *testing.T) {
	var ready Ready
	h := Public(prometheus.NewRegistry(), &ready)
	expect(t, h, "GET", "/readyz", 503, "not ready\n")
	expect(t, h, "GET", "/healthz", 200, "ok\n")
	ready.Set(true)
	expect(t, h, "GET", "/readyz", 200, "ready\n")
	ready.Set(false)
	expect(t, h, "GET", "/readyz", 503, "not ready\n")
	expect(t, h, "GET", "/healthz", 200, "ok\n")
	expect(t, h, "HEAD", "/readyz", 503, "")
}

func TestMetricsAreServed(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total", Help: "Things."})
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	c.Inc()
	status, contentType, body := call(t, Public(reg, &Ready{}), "GET", "/metrics")
	if status != 200 || !strings.HasPrefix(contentType, "text/plain") || !strings.Contains(body, "things_total 1\n") {
		t.Errorf("%d %s\n%s", status, contentType, body)
	}
}

func TestStateIsJSON(t *testing.T) {
	type state struct {
		Waiting int    `json:"waiting"`
		Hash    string `json:"policy_hash"`
	}
	h := Private(func() any { return state{8, "abc"} }, func() {})
	status, contentType, body := call(t, h, "GET", "/debug/state")
	var got state
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if status != 200 || contentType != "application/json" || got != (state{8, "abc"}) {
		t.Errorf("%d %s %+v", status, contentType, got)
	}
}

func TestResetIsAPost(t *testing.T) {
	resets := 0
	h := Private(func() any { return nil }, func() { resets++ })
	expect(t, h, "GET", "/debug/reset", 405, "")
	expect(t, h, "HEAD", "/debug/reset", 405, "")
	if resets != 0 {
		t.Errorf("a GET has reset the maxima")
	}
	expect(t, h, "POST", "/debug/reset", 200, "maxima reset\n")
	if resets != 1 {
		t.Errorf("%d resets, want 1", resets)
	}
}

func TestOtherMethodsAndPathsAreRefused(t *testing.T) {
	public := Public(prometheus.NewRegistry(), &Ready{})
	private := Private(func() any { return nil }, func() {})
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			expect(t, public, method, path, 405, "")
		}
		expect(t, private, "GET", path, 404, "")
	}
	expect(t, private, "POST", "/debug/state", 405, "")
	for _, path := range []string{"/debug/state", "/debug/reset", "/debug/pprof/", "/", "/metrics/x"} {
		expect(t, public, "GET", path, 404, "")
	}
}

func TestProfilesArePrivate(t *testing.T) {
	private := Private(func() any { return nil }, func() {})
	expect(t, private, "GET", "/debug/pprof/", 200, "goroutine")
	expect(t, private, "GET", "/debug/pprof/cmdline", 200, "")
	expect(t, private, "GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile")
}
