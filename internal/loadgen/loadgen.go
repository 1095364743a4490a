// Package loadgen sends one burst of requests from many clients at one instant and judges the answers from outside:
// who was admitted, who was shed and why, how long the admitted waited, and what the upstream saw of it.
//
// It stands outside brownout: of this module it imports only the stub's counters. A [Generator] owns its connections
// and every goroutine it starts ends before the method that started it returns. Its methods are called one at a time.
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// Bounds of a run.
const (
	MaxClients    = 10_000
	maxAnswerKept = 1 << 20 // bytes of an answer read for its reason; the rest is read and dropped
	controlWait   = 5 * time.Second
	quietWait     = 30 * time.Second
	quietPoll     = 20 * time.Millisecond
)

// Config says whom to load and how. URL and Clients are required.
type Config struct {
	URL         string        // of every request, http or https, with its path
	WarmPath    string        // where connections are warmed; empty means stub.PathWarm
	Method      string        // empty means POST
	Body        []byte        // of every request
	Header      http.Header   // added to every request, after the generator's own
	Clients     int           // 1 to MaxClients; each sends one request per burst, and its retries
	Latency     string        // sent as x-stub-latency; empty means not sent
	HTTP2       bool          // HTTP/2, with prior knowledge on http URLs; else HTTP/1.1 with one connection per client
	Connections int           // HTTP/2: shared by the clients in turn; 0 means 4
	Timeout     time.Duration // of one attempt; 0 means 30 s
	Stub        string        // base URL of the stub, for its counters; empty means they are not known
	Metrics     string        // URL of brownout's /metrics; empty means not known
	Admin       string        // base URL of brownout's admin listener, to reset its maxima; empty means they are not reset
	Seed        uint64        // of retry jitter
	Progress    io.Writer     // one line per step; nil means silent
}

// Generator holds warmed connections. Open makes one; Close ends it.
type Generator struct {
	cfg     Config
	target  *url.URL
	control *http.Client // for counters, never for the load
	clients []*client
	own     []*http.Transport
	dials   atomic.Int64
}

// Open checks cfg, opens the connections and sends one request to WarmPath on each. Any status will do.
func Open(ctx context.Context, cfg Config) (*Generator, error) {
	g, err := build(cfg)
	if err != nil {
		return nil, err
	}
	g.progress("warming %d connections to %s", len(g.own), g.target.Host)
	if err := g.warm(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func build(cfg Config) (*Generator, error) {
	target, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Clients < 1 || cfg.Clients > MaxClients {
		return nil, fmt.Errorf("%d clients is out of range: use 1 to %d", cfg.Clients, MaxClients)
	}
	if cfg.Connections < 0 {
		return nil, fmt.Errorf("%d connections is negative: use 1 or more", cfg.Connections)
	}
	setDefaults(&cfg)
	g := &Generator{cfg: cfg, target: target, control: &http.Client{Transport: &http.Transport{}, Timeout: controlWait}}
	connections := cfg.Clients
	if cfg.HTTP2 {
		connections = min(cfg.Connections, cfg.Clients)
	}
	for range connections {
		g.own = append(g.own, g.transport())
	}
	for i := range cfg.Clients {
		g.clients = append(g.clients, &client{g: g, number: i, transport: g.own[i%connections]})
	}
	return g, nil
}

func setDefaults(cfg *Config) {
	if cfg.WarmPath == "" {
		cfg.WarmPath = stub.PathWarm
	}
	if cfg.Method == "" {
		cfg.Method = http.MethodPost
	}
	if cfg.Connections == 0 {
		cfg.Connections = 4
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("url %q: %w", text, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("url %q is not of the form http://HOST:PORT/PATH", text)
	}
	return u, nil
}

// transport holds one connection.
func (g *Generator) transport() *http.Transport {
	p := new(http.Protocols)
	p.SetHTTP1(!g.cfg.HTTP2)
	p.SetHTTP2(g.cfg.HTTP2)
	p.SetUnencryptedHTTP2(g.cfg.HTTP2)
	t := &http.Transport{Protocols: p, DisableCompression: true, MaxIdleConnsPerHost: 1}
	if !g.cfg.HTTP2 {
		t.MaxConnsPerHost = 1
	}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return t
}

// Close closes the connections.
func (g *Generator) Close() {
	for _, t := range g.own {
		t.CloseIdleConnections()
	}
	g.control.CloseIdleConnections()
}

func (g *Generator) progress(format string, args ...any) {
	fmt.Fprintf(g.cfg.Progress, "load: "+format+"\n", args...)
}

// warm opens every connection at once: they are as many as the clients, and opening is slow compared with the burst.
func (g *Generator) warm(ctx context.Context) error {
	u := *g.target
	u.Path, u.RawPath, u.RawQuery = g.cfg.WarmPath, "", ""
	errs := make([]error, len(g.own))
	var wg sync.WaitGroup
	for i, t := range g.own {
		wg.Go(func() { errs[i] = g.warmOne(ctx, t, u.String()) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("warm up: %w", explain(err, u.String(), "--url"))
		}
	}
	return nil
}

func (g *Generator) warmOne(ctx context.Context, t *http.Transport, url string) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// explain adds the address, and the remedy where nothing listens. Errors of http.Client name the address themselves.
func explain(err error, address, flag string) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nothing listens at %s (connection refused): start it, or give its address with %s", address, flag)
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return fmt.Errorf("%s: %w: check %s", address, err, flag)
}

// Burst waits until the system is quiet, resets the maxima, releases every client at one instant and waits for all of
// them, retries included. An error means that the run says nothing; requests that failed are in the report instead.
func (g *Generator) Burst(ctx context.Context, plan Plan) (Report, error) {
	if err := plan.Validate(); err != nil {
		return Report{}, err
	}
	if err := g.Quiet(ctx); err != nil {
		return Report{}, err
	}
	if err := g.Reset(ctx); err != nil {
		return Report{}, err
	}
	dialled := g.dials.Load()
	users, released, err := g.release(ctx, plan)
	if err != nil {
		return Report{}, err
	}
	report := summarize(users, released)
	report.Redials = int(g.dials.Load() - dialled)
	if err := g.observe(ctx, &report); err != nil {
		return Report{}, err
	}
	return report, nil
}

// release parks one goroutine per client with its first request ready, and frees them all by closing one channel.
func (g *Generator) release(ctx context.Context, plan Plan) ([][]attempt, time.Time, error) {
	users := make([][]attempt, len(g.clients))
	start := make(chan struct{})
	var ready, done sync.WaitGroup
	var released time.Time
	for i, c := range g.clients {
		first, err := c.request(1)
		if err != nil {
			close(start) // nothing was sent: parked clients see the zero time
			done.Wait()
			return nil, released, err
		}
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			if !released.IsZero() {
				users[i] = c.play(ctx, plan, first)
			}
		})
	}
	ready.Wait()
	runtime.GC() // none of it during the burst
	released = time.Now()
	close(start)
	done.Wait()
	return users, released, context.Cause(ctx)
}
