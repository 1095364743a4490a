package seal

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// patience bounds every wait; it is reached only when something is broken.
const patience = 20 * time.Second

// conns is a listener that remembers its connections, so that a test can destroy them.
type conns struct {
	net.Listener
	mu   sync.Mutex // guards open
	open []net.Conn
}

func (l *conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.open = append(l.open, c)
		l.mu.Unlock()
	}
	return c, err
}

// destroy closes every connection in mid-flight.
func (l *conns) destroy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close() // destroyed on purpose
	}
	l.open = nil
}

func (l *conns) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// unixListener listens on a socket of the test's own.
func unixListener(t testing.TB) *conns {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(testkit.SocketDir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	return &conns{Listener: l}
}

func clearHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// serveHTTP2 serves h in place of Envoy's inner listener.
func serveHTTP2(t testing.TB, h http.Handler) *conns {
	t.Helper()
	l := unixListener(t)
	srv := &http.Server{Handler: h, Protocols: clearHTTP2(), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("closing the upstream: %v", err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the upstream: %v", err)
		}
	})
	return l
}

func dialer(addr net.Addr) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, addr.Network(), addr.String())
	}
}

// startSeal serves a seal in front of inner until the test ends.
func startSeal(t testing.TB, o Options) (*Seal, net.Addr) {
	t.Helper()
	s, l, done := New(o), unixListener(t), make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // t.Context has ended
		defer cancel()
		_ = s.Shutdown(ctx) // what the test left open is cut
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, l.Addr()
}

// client speaks HTTP/2 to addr, as Envoy would.
func client(t testing.TB, addr net.Addr) *http.Client {
	tr := &http.Transport{
		Protocols: clearHTTP2(), DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer(addr)(ctx) },
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// sealed is a seal between a client and an upstream.
type sealed struct {
	*Seal
	client   *http.Client
	upstream *conns
	sealAddr net.Addr
}

// everyone is Live for every id.
func everyone(string) bool { return true }

func start(t testing.TB, live func(string) bool, upstream http.HandlerFunc) *sealed {
	t.Helper()
	l := serveHTTP2(t, upstream)
	s, addr := startSeal(t, Options{Dial: dialer(l.Addr()), Live: live})
	return &sealed{s, client(t, addr), l, addr}
}

// request is a GET with id 7.
func request(t testing.TB, ctx context.Context) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://model.test/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-brownout-id", "7")
	return r
}

// got is an answer read to its end.
type got struct {
	status  int
	header  http.Header
	body    string
	trailer http.Header
	err     error // of the body
}

func do(t testing.TB, c *http.Client, r *http.Request) got {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return read(res)
}

func read(res *http.Response) got {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return got{res.StatusCode, res.Header, string(body), res.Trailer, err}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, ok, what)
}

// checkEnds waits until the seal has counted exactly these ends and nothing is in flight.
func checkEnds(t testing.TB, s *Seal, want map[End]int) {
	t.Helper()
	var st Stats
	ok := func() bool {
		st = s.Stats()
		sum, wanted := 0, 0
		for _, n := range st.Ended {
			sum += n
		}
		for _, n := range want {
			wanted += n
		}
		return st.InFlight == 0 && sum >= wanted
	}
	testkit.Eventually(t, patience, ok, "requests are left in flight")
	for e := range numEnds {
		if st.Ended[e] != want[e] {
			t.Errorf("%d ended %s, want %d", st.Ended[e], e, want[e])
		}
	}
}

// checkNoGoroutine checks at the end of the test that nothing of the seal's runs any more. Call it first.
func checkNoGoroutine(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			buf := make([]byte, 4<<20)
			stacks := string(buf[:runtime.Stack(buf, true)])
			_, left, found := strings.Cut(stacks, "internal/seal.(*")
			if !found {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("a goroutine of the seal is left: (*%.2000s", left)
			}
		}
	})
}
