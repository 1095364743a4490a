package stub

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

func newStub(t *testing.T, cfg Config) *Stub {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running serves a stub on a free port until the test ends or stop is called.
type running struct {
	*Stub
	url  string
	stop func()
}

func start(t *testing.T, cfg Config) running {
	t.Helper()
	s := newStub(t, cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, s) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return running{Stub: s, url: "http://" + ln.Addr().String(), stop: stop}
}

// clientFor speaks HTTP/1.1 or cleartext HTTP/2.
func clientFor(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	tr := &http.Transport{Protocols: p, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func send(t *testing.T, c *http.Client, url, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
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

func accounted(s Stats) bool {
	return s.Arrived == s.Finished+s.Cancelled+s.Wasted+s.Throttled+s.Inflight
}
