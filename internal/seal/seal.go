package seal

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// streamWindow is how much of one body is buffered in each direction. Half a memory page's worth of tokens would do;
	// this much keeps a body of megabytes at the speed of the socket.
	streamWindow = 64 << 10
	// serverStreams bounds the streams of one connection from Envoy. The generated configuration opens fewer, so it is
	// never what a request waits for.
	serverStreams = 1000
	// serverWindow is what all uploads of one connection buffer together. It is above what the generated
	// configuration's streams per connection can fill (100 of streamWindow), so that uploads whose upstream does not
	// read hold no other up.
	serverWindow = 16 << 20
	// maxHeader bounds the headers of a request and of an answer. Envoy's own bound is 60 KiB.
	maxHeader = 256 << 10
	// bufferSize is one read of a body: two frames of HTTP/2's default size.
	bufferSize = 32 << 10
	// closeGrace is how long a cancelled request waits for Envoy to close its side, which follows the session's ending.
	// It is above the time Envoy gives a client that does not read that ending (stream_flush_timeout, 5 s).
	closeGrace = 10 * time.Second
)

// Options make a Seal.
type Options struct {
	// Dial connects to Envoy's inner listener. Required.
	Dial func(ctx context.Context) (net.Conn, error)
	// Live reports whether the session of a request is in this process and still watches its answer. nil: none is, so
	// that every cut stays a cut.
	Live func(id string) bool
	// Cut hears of the request whose upstream died in an answer that nobody can end honestly, before the cut is passed
	// on. nil: nobody listens. It must not block.
	Cut func(id string)
	// Logger defaults to discarding. A request is logged at debug, at most once.
	Logger *slog.Logger
	// Observer hears how each request ended. nil: nobody listens. It must not block.
	Observer func(End)
}

// Seal forwards sealed requests. Make one with New.
type Seal struct {
	dial   func(ctx context.Context) (net.Conn, error)
	isLive func(id string) bool
	onCut  func(id string)
	log    *slog.Logger
	ended  func(End)

	server   *http.Server
	pool     *pool
	registry *registry
	buffers  sync.Pool // *[]byte of bufferSize
	counts   [numEnds]atomic.Uint64
}

// New makes a seal. It starts nothing.
func New(o Options) *Seal {
	s := &Seal{dial: o.Dial, isLive: o.Live, onCut: o.Cut, log: o.Logger, ended: o.Observer, registry: newRegistry()}
	if s.isLive == nil {
		s.isLive = func(string) bool { return false }
	}
	if s.onCut == nil {
		s.onCut = func(string) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ended == nil {
		s.ended = func(End) {}
	}
	s.buffers.New = func() any { b := make([]byte, bufferSize); return &b }
	s.pool = newPool(o.Dial)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler:        http.HandlerFunc(s.serve),
		Protocols:      protocols,
		MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          serverStreams,
			MaxReceiveBufferPerConnection: serverWindow,
			MaxReceiveBufferPerStream:     streamWindow,
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve accepts connections of Envoy's until Shutdown, and then returns nil; it closes l.
func (s *Seal) Serve(l net.Listener) error {
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown takes no new connections, lets requests in flight end until ctx is done, and then cuts what is left. It
// returns when nothing of the seal's runs any more, with ctx's error if it had to cut.
func (s *Seal) Shutdown(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	s.registry.close() // a closed connection ends the context of each of its requests
	s.pool.close()
	return err
}

// Cancel ends the upstream request of id at once and reports whether there was one. The answer's stream to Envoy stays
// open and silent: the session has written the ending already, and Envoy closes the stream behind it. A second request
// of the same id (Envoy retried) is cancelled too.
func (s *Seal) Cancel(id string) bool { return s.registry.end(id, errCancelled) }

// Finish ends the upstream request of id at once and its answer cleanly, where it is, and reports whether there was one:
// the session has seen that nothing is missing, although the upstream keeps the answer open.
func (s *Seal) Finish(id string) bool { return s.registry.end(id, errFinished) }

// Blocked reports whether a piece of the answer of id waits to be taken: the caller does not read, so a silence says
// nothing of the upstream.
func (s *Seal) Blocked(id string) bool { return s.registry.writing(id) }

// Stats are the seal's counters since New.
type Stats struct {
	InFlight    int         // requests being forwarded
	Connections int         // to the inner listener
	Ended       map[End]int // by how they ended; absent means 0
}

// Stats reads the counters.
func (s *Seal) Stats() Stats {
	st := Stats{InFlight: s.registry.inFlight(), Connections: s.pool.size(), Ended: make(map[End]int)}
	for e := range numEnds {
		if n := s.counts[e].Load(); n > 0 {
			st.Ended[e] = int(n)
		}
	}
	return st
}
