package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-brownout/brownout/extproc"
	"github.com/envoy-brownout/brownout/internal/admin"
	"github.com/envoy-brownout/brownout/internal/metrics"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/seal"
	"github.com/envoy-brownout/brownout/policy"
	"github.com/envoy-brownout/brownout/policy/watch"
)

// serviceName is what Envoy's gRPC health check asks for.
const serviceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// shedBefore is how long before the end of the grace period the requests still queued are refused, so that their
// answers get out.
const shedBefore = time.Second

// gcPercent trades memory for fewer collections: most garbage is messages of a few hundred bytes, and the live heap is
// small. GOGC in the environment overrides it.
const gcPercent = 400

const (
	// idleEnough is how long nothing may have happened before a draining process ends early.
	idleEnough = 500 * time.Millisecond
	// lastWords is the least time refusals have to get out, whatever the grace period.
	lastWords = 200 * time.Millisecond
)

// Bounds of the HTTP listeners: whoever can reach them must not use up the file descriptors Envoy needs.
const (
	maxHTTPConns  = 256
	httpReadTime  = 10 * time.Second
	httpIdleTime  = 30 * time.Second
	httpWriteTime = 2 * time.Minute // a CPU profile takes 30 s by default
)

type serveCmd struct {
	Policy     string        `required:"" placeholder:"FILE" help:"Policy file; changes are applied while running."`
	Listen     string        `default:"unix:/tmp/brownout/extproc.sock" placeholder:"ADDR" help:"Where Envoy reaches the processor: unix:PATH or HOST:PORT (${default})."`
	Seal       string        `default:"unix:/tmp/brownout/seal.sock" placeholder:"ADDR" help:"Where Envoy reaches the seal, on this machine: unix:PATH or 127.0.0.1:PORT; none turns it off (${default})."`
	Inner      string        `default:"unix:/tmp/brownout/inner.sock" placeholder:"ADDR" help:"Where Envoy listens for the seal: unix:PATH or 127.0.0.1:PORT (${default})."`
	HTTP       string        `name:"http" default:":9464" placeholder:"ADDR" help:"Where /metrics, /healthz and /readyz are served; none turns it off (${default})."`
	Admin      string        `default:"127.0.0.1:9465" placeholder:"ADDR" help:"Where /debug/state, /debug/reset and /debug/pprof are served; none turns it off (${default})."`
	BodyLimit  int64         `name:"body-limit" default:"8388608" placeholder:"BYTES" help:"Largest request body on routes that need it, in bytes, as Envoy was told (${default})."`
	SocketMode string        `default:"0600" placeholder:"MODE" help:"Mode of the unix sockets, octal; 0660 or 0666 for an Envoy under another user (${default})."`
	Grace      time.Duration `default:"30s" help:"How long running and queued requests may take after SIGTERM (${default})."`
	TLSCert    string        `name:"tls-cert" placeholder:"FILE" help:"Certificate for a TCP --listen (PEM); goes with the next two."`
	TLSKey     string        `name:"tls-key" placeholder:"FILE" help:"The certificate's private key (PEM)."`
	TLSCA      string        `name:"tls-client-ca" placeholder:"FILE" help:"Authorities (PEM) that have signed the certificates of the Envoys to let in."`
	Insecure   bool          `help:"Listen on TCP without TLS: anybody who can connect can take slots."`
	LogLevel   string        `default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error (${default}); debug logs every request."`
	LogFormat  string        `default:"text" enum:"text,json" help:"text or json (${default})."`
}

// Help teaches what the flags leave open.
func (*serveCmd) Help() string {
	return `Envoy asks this process about every request. "brownout envoy bootstrap" renders the configuration Envoy needs for it from
the same policy.

On SIGTERM or Ctrl-C the process is no longer ready, but serves on: what runs, what waits and what still comes. It ends
when nothing has happened for half a second. One second before --grace has passed, what still waits is refused with
503 shutting_down; answers in progress have the whole of --grace.

Exit codes: 0 ended cleanly, 1 a run-time failure such as a port in use, 2 a bad flag or policy.`
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, std Stdio) error {
	src, snap, err := loadPolicy(c.Policy, std.Err)
	if err != nil {
		return err
	}
	s, err := c.build(ctx, std, src, snap)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// loadPolicy reads and compiles a policy and prints what is wrong with it. A bad one is exit code 2.
func loadPolicy(path string, w interface{ Write([]byte) (int, error) }) ([]byte, *policy.Snapshot, error) {
	src, err := watch.Read(path)
	if err != nil {
		hint := ""
		if errors.Is(err, fs.ErrNotExist) {
			hint = " (write one: docs/policy.md has a first policy)"
		}
		return nil, nil, usageError(fmt.Errorf("%w%s", err, hint))
	}
	snap, problems := policy.Parse(path, src)
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
	if snap == nil {
		return nil, nil, usageError(fmt.Errorf("policy %s has errors: nothing was started", path))
	}
	return src, snap, nil
}

// server is a running brownout.
type server struct {
	cmd     *serveCmd
	log     *slog.Logger
	proc    *extproc.Server
	metrics *metrics.Metrics
	ready   admin.Ready
	health  *health.Server
	grpc    *grpc.Server
	watcher *watch.Watcher
	seal    *seal.Seal // nil: off
	store   replay.Store
	secret  []byte       // of the HMAC over credentials; nil: a random one
	storage policy.Store // what the store was opened for
	sockets sockets
	public  http.Handler
	private http.Handler
}

// sockets are the listeners; nil ones are turned off.
type sockets struct{ grpc, seal, http, admin net.Listener }

func (s sockets) close() {
	for _, l := range []net.Listener{s.grpc, s.seal, s.http, s.admin} {
		if l != nil {
			_ = l.Close() // the process ends; nothing can be done about it
		}
	}
}

// build makes everything that can fail before the first request, and opens the listeners last.
func (c *serveCmd) build(ctx context.Context, std Stdio, src []byte, snap *policy.Snapshot) (*server, error) {
	if c.Grace < 0 {
		return nil, usageError(fmt.Errorf("--grace %s: must not be negative", c.Grace))
	}
	s := &server{cmd: c, log: c.logger(std), health: health.NewServer()}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if s.metrics, err = metrics.New(reg, version(), s.live); err != nil {
		return nil, err
	}
	if err := s.openStore(ctx, snap); err != nil {
		return nil, usageError(err)
	}
	s.proc = extproc.New(snap, extproc.Options{Logger: s.log, Observer: observer{s.metrics}, CancelUpstream: s.cancelUpstream,
		FinishUpstream: s.finishUpstream, Blocked: s.blocked, Store: s.store, Secret: s.secret})
	if err := c.makeSeal(s); err != nil {
		return nil, usageError(err)
	}
	s.metrics.Reloaded(true, time.Now())
	s.public = admin.Public(reg, &s.ready)
	s.private = admin.Private(func() any { return s.state() }, s.proc.ResetMax)
	s.watcher, err = watch.New(watch.Options{Path: c.Policy, Loaded: src, Failed: s.reloadFailed, Logger: s.log}, s.reload)
	if err != nil {
		return nil, usageError(err)
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, usageError(err)
	}
	s.grpc = grpc.NewServer(append(extproc.ServerOptions(c.BodyLimit), creds...)...)
	s.proc.Register(s.grpc)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	if s.sockets, err = c.listen(); err != nil {
		s.closeStore(ctx)
		s.sockets.close()
		if errors.Is(err, errInUse) { // the flag is right, the moment is not
			return nil, err
		}
		return nil, usageError(err)
	}
	return s, nil
}

func (c *serveCmd) logger(std Stdio) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // the flag takes no other words
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(std.Err, o))
	}
	return slog.New(slog.NewTextHandler(std.Err, o))
}

// reload puts a changed policy into force, or says why not; the old one then stays.
func (s *server) reload(src []byte) error {
	snap, problems := policy.Parse(s.cmd.Policy, src)
	for _, p := range problems {
		s.log.Warn("policy", slog.String("problem", p.String()))
	}
	if snap == nil {
		return fmt.Errorf("policy %s has errors: the one in force stays", s.cmd.Policy)
	}
	if !sameStore(s.storage, snap.Store) {
		s.log.Warn("policy: the store has changed, which takes effect when brownout is started again")
	}
	s.proc.Apply(snap)
	s.metrics.Reloaded(true, time.Now())
	s.log.Info("policy applied", slog.String("hash", snap.Hash))
	return nil
}

func (s *server) reloadFailed(error) { s.metrics.Reloaded(false, time.Now()) }

// run serves until ctx ends and then drains.
func (s *server) run(ctx context.Context) error {
	defer s.closeStore(context.WithoutCancel(ctx))
	defer s.proc.Close()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	g, gctx := errgroup.WithContext(ctx)
	web := []*http.Server{serveHTTP(g, s.sockets.http, s.public), serveHTTP(g, s.sockets.admin, s.private)}
	g.Go(func() error { return s.watcher.Run(gctx) })
	s.serveSeal(g)
	g.Go(func() error {
		if err := s.grpc.Serve(s.sockets.grpc); !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			return err
		}
		return nil
	})
	s.setReady(true)
	s.log.Info("serving", slog.String("version", version()), slog.String("policy", s.proc.Policy().Hash),
		slog.String("listen", address(s.sockets.grpc)), slog.String("seal", address(s.sockets.seal)), slog.String("http", address(s.sockets.http)), slog.String("admin", address(s.sockets.admin)))
	<-gctx.Done()
	s.drain()
	s.stopSeal(gctx)
	for _, w := range web {
		if w != nil {
			_ = w.Close() // probes and scrapes need no farewell
		}
	}
	if err := g.Wait(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	s.log.Info("stopped")
	return nil
}

func serveHTTP(g *errgroup.Group, l net.Listener, h http.Handler) *http.Server {
	if l == nil {
		return nil
	}
	w := &http.Server{Handler: h, ReadTimeout: httpReadTime, IdleTimeout: httpIdleTime, WriteTimeout: httpWriteTime}
	g.Go(func() error {
		if err := w.Serve(netutil.LimitListener(l, maxHTTPConns)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return w
}

// drain serves on, no longer ready, until nothing has been in flight for a while or the grace period is almost over.
// What waits then is refused, and answers in progress have what is left of the period.
func (s *server) drain() {
	s.setReady(false)
	s.log.Info("draining", slog.Int64("grace_ms", s.cmd.Grace.Milliseconds()), slog.Int64("in_flight", s.proc.Tally().InFlight))
	stop := time.AfterFunc(max(s.cmd.Grace, lastWords), s.grpc.Stop)
	defer stop.Stop()
	if !s.awaitIdle(s.cmd.Grace - shedBefore) {
		s.proc.Shed()
	}
	s.grpc.GracefulStop() // GOAWAY; returns when every stream has ended, or stop has cut them
}

// awaitIdle waits until nothing has been in flight and nothing has arrived for idleEnough; false when that takes longer
// than limit.
func (s *server) awaitIdle(limit time.Duration) bool {
	end := time.NewTimer(max(0, limit))
	defer end.Stop()
	look := time.NewTicker(idleEnough / 10)
	defer look.Stop()
	quietSince, arrived := time.Now(), s.proc.Tally().Arrived
	for {
		t := s.proc.Tally()
		if now := time.Now(); t.InFlight > 0 || t.Arrived != arrived {
			quietSince, arrived = now, t.Arrived
		} else if now.Sub(quietSince) >= idleEnough {
			return true
		}
		select {
		case <-end.C:
			return false
		case <-look.C:
		}
	}
}

func (s *server) setReady(on bool) {
	s.ready.Set(on)
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if on {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(serviceName, status)
}

// live is what the metrics read at a scrape.
func (s *server) live() metrics.Live {
	st := s.proc.Dump(false)
	l := metrics.Live{Unaccounted: s.proc.Tally().Unaccounted, HeldBytes: s.proc.HeldBytes()}
	for _, t := range st.Tiers {
		l.Tiers = append(l.Tiers, metrics.Tier{Name: t.Tier, Limit: t.Limit, Used: t.Used, UsedMax: t.UsedMax,
			Waiting: t.Waiting, WaitMax: t.WaitingMax})
	}
	return l
}

func address(l net.Listener) string {
	if l == nil {
		return off
	}
	if a, ok := l.Addr().(*net.UnixAddr); ok {
		return "unix:" + a.Name
	}
	return l.Addr().String()
}

// socketMode reads --socket-mode.
func (c *serveCmd) socketMode() (os.FileMode, error) {
	n, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("--socket-mode %q: want an octal mode such as 0600 or 0660", c.SocketMode)
	}
	return os.FileMode(n), nil
}
