package loadgen

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// limiter is the smallest thing that sheds as brownout does: slots, a bounded queue, and 503 for the rest. It also plays
// brownout's metrics and admin pages.
type limiter struct {
	next  http.Handler
	bare  bool // sheds carry no x-brownout-source
	slots int
	queue int

	mu       sync.Mutex // guards the fields below
	active   int
	waiting  []chan struct{}
	queueMax int
	resets   int
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case stub.PathWarm:
		w.WriteHeader(http.StatusNotFound) // any status will do
	case "/metrics":
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintf(w, "# TYPE brownout_queue_depth_max gauge\nbrownout_queue_depth_max{tier=\"full\"} %d\nbrownout_queue_depth_max{tier=\"idle\"} 0\n", l.queueMax)
		fmt.Fprintf(w, "# TYPE brownout_inflight gauge\nbrownout_inflight{tier=\"full\"} %d\n", l.active)
	case "/debug/reset":
		l.mu.Lock()
		defer l.mu.Unlock()
		l.queueMax = len(l.waiting)
		l.resets++
	default:
		l.limit(w, r)
	}
}

func (l *limiter) limit(w http.ResponseWriter, r *http.Request) {
	if !l.enter(r.Context()) {
		if !l.bare {
			w.Header().Set("x-brownout-source", "shed")
		}
		w.Header().Set("content-type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"capacity","reason":"queue_full"}`)
		return
	}
	defer l.leave()
	if !l.bare {
		w.Header().Set("x-brownout-source", "upstream")
	}
	l.next.ServeHTTP(w, r)
}

func (l *limiter) enter(ctx context.Context) bool {
	l.mu.Lock()
	if l.active < l.slots {
		l.active++
		l.mu.Unlock()
		return true
	}
	if len(l.waiting) >= l.queue {
		l.mu.Unlock()
		return false
	}
	granted := make(chan struct{})
	l.waiting = append(l.waiting, granted)
	l.queueMax = max(l.queueMax, len(l.waiting))
	l.mu.Unlock()
	select {
	case <-granted:
		return true
	case <-ctx.Done():
		return false // good enough for tests whose clients stay
	}
}

func (l *limiter) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.active--
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
}

// bench is a limiter of 4 slots and 8 places in front of a stub, both on real sockets.
type bench struct {
	limiter *limiter
	stub    *stub.Stub
	front   string // base URL of the limiter
	back    string // base URL of the stub
}

func newBench(t *testing.T, bare bool) bench {
	t.Helper()
	s, err := stub.New(stub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	back := serveBoth(t, s)
	target, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	pool := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(pool.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: pool,
		ErrorLog:  log.New(io.Discard, "", 0), // clients that leave are part of the tests
	}
	l := &limiter{next: proxy, slots: 4, queue: 8, bare: bare}
	return bench{limiter: l, stub: s, front: serveBoth(t, l), back: back}
}

// serveBoth serves HTTP/1.1 and cleartext HTTP/2 until the test ends.
func serveBoth(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv.Config.Protocols = p
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func (b bench) config() Config {
	return Config{
		URL: b.front + "/v1/chat/completions", Clients: 60, Latency: "50ms", Body: []byte(`{"messages":[]}`),
		Stub: b.back, Metrics: b.front, Admin: b.front, Seed: 1,
	}
}

func open(t *testing.T, cfg Config) *Generator {
	t.Helper()
	g, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func burst(t *testing.T, g *Generator, plan Plan) Report {
	t.Helper()
	r, err := g.Burst(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// freeAddress is an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// eventually polls until cond holds: the other side is a real socket.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			buf := make([]byte, 1<<16)
			t.Fatalf("not within 10 s: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}
