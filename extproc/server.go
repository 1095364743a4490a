package extproc

import (
	"cmp"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/session"
	"github.com/envoy-brownout/brownout/policy"
)

// Options tune a Server. The zero value works.
type Options struct {
	Logger   *slog.Logger // default: discard
	Observer Observer     // default: nobody listens
	// CancelUpstream ends the upstream's work on the request of that id, which has gone over the seal. Default: nothing.
	CancelUpstream func(id string)
	// FinishUpstream ends the answer of the request of that id, which has gone over the seal and is complete but stays
	// open. Default: nothing.
	FinishUpstream func(id string)
	// Blocked says whether the caller of the request of that id, which has gone over the seal, does not take what is there
	// of its answer. Default: it does.
	Blocked func(id string) bool
	// Store keeps answers for replays. Default: this process's memory, of the size the policy says.
	Store replay.Store
	// Secret is the key of the HMAC over callers' credentials. Default: a random one.
	Secret []byte
}

// Server is the external processor. Make one with New; it serves any number of streams.
type Server struct {
	pb.UnimplementedExternalProcessorServer
	engine *engine.Engine
	log    *slog.Logger
	obs    Observer
	alarm  alarm
	tally  tally

	wantHash atomic.Pointer[string] // of the Envoy configuration the policy in force needs
	fit      fit
	sealed   registry
	cancel   func(id string)
	finish   func(id string)
	blocked  func(id string) bool
	held     atomic.Int64 // bytes of answers held back
	nagged   atomic.Int64 // when an unexpected message was last complained about, in Unix seconds
}

// New makes a server for a policy.
func New(s *policy.Snapshot, o Options) *Server {
	srv := &Server{log: o.Logger, obs: o.Observer, cancel: o.CancelUpstream, finish: o.FinishUpstream, blocked: o.Blocked}
	if srv.finish == nil {
		srv.finish = func(string) {}
	}
	if srv.blocked == nil {
		srv.blocked = func(string) bool { return false }
	}
	if srv.cancel == nil {
		srv.cancel = func(string) {}
	}
	if srv.log == nil {
		srv.log = slog.New(slog.DiscardHandler)
	}
	if srv.obs == nil {
		srv.obs = nobody{}
	}
	srv.obs = guarded{srv.obs, srv.complain}
	srv.engine = engine.New(time.Now(), s, engine.Options{Store: o.Store, Secret: o.Secret, Replay: srv.obs.Replayed, Complain: srv.complain})
	srv.alarm.next, srv.alarm.tick = srv.engine.NextWake, srv.engine.Tick
	srv.setHash(s)
	return srv
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { pb.RegisterExternalProcessorServer(r, s) }

// messageRoom is what a message needs beside a body: headers, attributes and their framing.
const messageRoom = 1 << 20

// minPing is the shortest time between two pings of an Envoy that is not an attack.
const minPing = time.Second

// Windows of the connection to Envoy. Being fixed they need no pings to measure the link, each of which wakes both sides
// while pieces of answers pass (grpc-go's BDP estimator); both are on one machine as a rule, where these fill any link.
const (
	streamWindow = 256 << 10
	connWindow   = 4 << 20
)

// ServerOptions are the gRPC settings the processor needs: no age limit on connections, which would cut long answers,
// as many streams per connection as Envoy opens, pings as often as Envoy sends them, windows of a fixed size, and messages
// large enough for a request body of bodyLimit bytes.
func ServerOptions(bodyLimit int64) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(min(bodyLimit, math.MaxInt32-messageRoom)) + messageRoom),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		// Envoy pings a quiet connection every few seconds. grpc-go takes that for abuse by default and cuts the
		// connection, with every answer on it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
}

// Apply makes s the policy of requests that arrive from now on.
func (s *Server) Apply(p *policy.Snapshot) {
	s.engine.Apply(time.Now(), p)
	s.setHash(p)
}

func (s *Server) setHash(p *policy.Snapshot) {
	h := envoy.ConfigHash(p)
	s.wantHash.Store(&h)
}

// Policy is the policy in force.
func (s *Server) Policy() *policy.Snapshot { return s.engine.Policy() }

// Shed refuses everything that waits and everything that comes with shutting_down; answers in progress go on.
func (s *Server) Shed() { s.engine.Close(time.Now(), outcome.ShedShuttingDown) }

// Close stops the server's timer. Call it after the gRPC server has stopped.
func (s *Server) Close() { s.alarm.stop() }

// Sealed says whether the request of that id is one of ours and still watched: only then may the seal end its answer
// where the upstream died.
func (s *Server) Sealed(id string) bool { return s.sealed.has(id) }

// UpstreamCut tells that the upstream of the sealed request of that id has died in an answer that the seal cannot end
// honestly; its stream is reset next.
func (s *Server) UpstreamCut(id string) {
	if st := s.sealed.find(id); st != nil {
		st.post(letter{ev: session.UpstreamCut{}})
		st.out.kick()
	}
}

// HeldBytes is how many bytes of answers are held back in all.
func (s *Server) HeldBytes() int64 { return s.held.Load() }

// Tally reads the books.
func (s *Server) Tally() Tally { return s.tally.read() }

// Dump reads the limiters; withWaiters adds the waiting requests.
func (s *Server) Dump(withWaiters bool) engine.State { return s.engine.Dump(time.Now(), withWaiters) }

// ResetMax starts the maxima of the limiters afresh.
func (s *Server) ResetMax() { s.engine.ResetMax() }

// Process serves one request's stream (envoy.service.ext_proc.v3.ExternalProcessor). It returns when Envoy has
// closed the stream and nothing of ours still uses it.
func (s *Server) Process(g pb.ExternalProcessor_ProcessServer) error {
	a := readAnnounced(g.Context())
	st := &stream{srv: s, out: newOutbox(g.Send), verbose: s.log.Enabled(g.Context(), slog.LevelDebug), seal: a.seal}
	defer st.end()
	a.known = s.checkHash(time.Now(), a)
	for {
		m, err := g.Recv()
		if err != nil {
			return nil // the end of the exchange, however it came; Envoy needs no status
		}
		st.receive(m, a)
		st.out.flush()
	}
}

func (st *stream) receive(m *pb.ProcessingRequest, a announced) {
	st.mu.Lock()
	st.owed = true
	st.mu.Unlock()
	attrs := m.GetAttributes()
	switch m := m.GetRequest().(type) {
	case *pb.ProcessingRequest_RequestHeaders:
		st.req = decodeRequest(m.RequestHeaders)
		st.req.MaxWait, st.req.RouteTimeout, st.req.Routes = a.maxWait, a.routeTimeout, a.known
		id, known := dialect.ByPath(pathOnly(st.req.Path))
		st.req.Dialect, st.req.More = id, !m.RequestHeaders.GetEndOfStream()
		st.post(letter{ev: session.RequestHeaders{Dialect: id, Known: known, Mistral: dialect.IsMistral(pathOnly(st.req.Path)), Head: st.req.Method == "HEAD", Array: dialect.StreamsAsArray(st.req.Path)}})
	case *pb.ProcessingRequest_RequestBody:
		st.post(letter{ev: session.Body{Phase: session.RequestBody, Data: m.RequestBody.GetBody(), End: m.RequestBody.GetEndOfStream()}})
	case *pb.ProcessingRequest_RequestTrailers:
		st.post(letter{ev: session.Body{Phase: session.RequestTrailers}})
	case *pb.ProcessingRequest_ResponseBody:
		st.post(letter{ev: session.Body{Phase: session.ResponseBody, Data: m.ResponseBody.GetBody(), End: m.ResponseBody.GetEndOfStream()}})
	case *pb.ProcessingRequest_ResponseHeaders:
		ev, told := decodeAnswer(m.ResponseHeaders, attrs, st.sealed())
		if st.keep.Load() {
			ev.Headers = allHeaders(m.ResponseHeaders)
		}
		st.srv.checkAttributes(time.Now(), told)
		st.post(letter{ev: ev})
	case *pb.ProcessingRequest_ResponseTrailers:
		st.post(letter{ev: decodeTrailers(m.ResponseTrailers, st.sealed())})
	}
}

// ended is what the engine hears of the end of a request.
func ended(now time.Time, f session.Finish) engine.Ended {
	end := engine.Ended{
		Outcome: f.Outcome, Admitted: !f.AdmittedAt.IsZero(), Tier: f.Tier, Reason: f.Ran, Attempts: f.Attempts,
		Status: f.Upstream, Headers: f.Headers, Body: f.Kept, Whole: f.Whole, Unread: f.Unread, Dialect: f.Dialect.String(), Degraded: f.Inner,
		Reply: f.Replied, Failed: f.Failed, Source: f.Author, Label: f.Label,
	}
	if end.Failed == outcome.DegradedNone {
		end.Failed = f.Terminal
	}
	if end.Admitted {
		end.Service = now.Sub(f.AdmittedAt)
	}
	if !f.ContentAt.IsZero() {
		end.First = f.ContentAt.Sub(f.AdmittedAt)
	}
	return end
}

func record(now time.Time, f session.Finish, class string, arrived time.Time) Record {
	r := Record{
		Route: f.Route, Class: class, Outcome: f.Outcome.String(), Source: f.Source.String(), Tier: f.Tier,
		Degraded: f.Degraded.String(), Shed: f.Shed.String(), ShedTier: f.ShedTier, Status: f.Status,
		Duration: now.Sub(arrived),
	}
	if r.Route == "" {
		r.Route = RouteNone
	}
	if f.AnsweredBy != "" {
		r.Answerer = f.AnsweredBy
	}
	r.Retries, r.Finish, r.Input, r.Output, r.Bytes = max(0, f.Attempts-1), f.Reason, f.Usage.Input, f.Usage.Output, f.Bytes
	if r.Dialect == "" && f.Bytes > 0 {
		r.Dialect = f.Dialect.String()
	}
	if !f.AdmittedAt.IsZero() {
		r.Upstream, r.UpstreamOutcome = now.Sub(f.AdmittedAt), f.Outcome.String()
	}
	if !f.ContentAt.IsZero() {
		r.FirstToken = f.ContentAt.Sub(f.AdmittedAt)
	}
	if f.Terminal != outcome.DegradedNone {
		r.Dialect, r.Terminal = f.Dialect.String(), f.Terminal.String()
	}
	r.Cut, r.Sealed, r.Details = f.Cut, f.Cut && f.CutSealed, f.Details
	return r
}

// logRequest writes one line per request: what went well, was shed or given up only when verbose, at debug; the rest at info.
func (s *Server) logRequest(r Record, verbose bool) {
	log := s.log.Info
	switch r.Outcome {
	case "ok", "degraded", "replayed", "shed", "unmatched", "client_aborted":
		if !verbose {
			return
		}
		log = s.log.Debug
	}
	log("request", slog.String("route", r.Route), slog.String("outcome", r.Outcome), slog.String("source", r.Source),
		slog.String("tier", cmp.Or(r.Answerer, r.Tier)), slog.String("reason", r.Shed+r.Degraded), slog.Int("status", r.Status),
		slog.Int64("took_ms", r.Duration.Milliseconds()), slog.String("details", r.Details),
		slog.String("dialect", r.Dialect), slog.Bool("cut", r.Cut), slog.Int64("bytes", r.Bytes), slog.String("finish", r.Finish),
		slog.Int("input_tokens", r.Input), slog.Int("output_tokens", r.Output))
}

// nagEvery is how often unexpected messages are complained about; who sends them decides how many there are.
const nagEvery = 10 * time.Second

// nag logs a message that has no place where it came, at warn once in a while and at debug otherwise.
func (s *Server) nag(now time.Time, what string) {
	log := s.log.Debug
	if last := s.nagged.Load(); now.Unix()-last >= int64(nagEvery/time.Second) && s.nagged.CompareAndSwap(last, now.Unix()) {
		log = s.log.Warn
	}
	log("unexpected message", slog.String("what", what))
}
