package redis

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/envoy-brownout/brownout/internal/replay"
)

// Defaults of Options.
const (
	DefaultPrefix  = "brownout:"
	DefaultTimeout = 20 * time.Millisecond
	DefaultLease   = 10 * time.Second
)

const (
	// ioTimeout bounds one exchange with the server. It is longer than a caller waits: an answer that comes too late for
	// its caller still tells what became of a claim, and a new connection may take several round trips.
	ioTimeout = time.Second
	// stuckTimeout is after how long without any answer a connection is given up.
	stuckTimeout = 2 * time.Second
	bufferSize   = 64 << 10
	// multiplex is the logarithm of connections: operations share them, each with many on the way.
	multiplex   = 1
	connections = 1 << multiplex
)

// Observer counts what goes wrong. It is called on any goroutine and must not block.
type Observer interface {
	// StoreFailed counts an operation that failed, came too late or was refused: one of Ops.
	StoreFailed(op string)
}

// Options say where the server is and how long it may take. A zero field stands for its default.
type Options struct {
	Address  string // HOST:PORT; needed
	Username string // "": the server's default user
	Password string // "": none
	TLS      bool   // with the system's roots, TLS 1.2 or newer
	Prefix   string // of every key; default DefaultPrefix
	// Timeout is when a Lookup or a Claim goes on without the store; default DefaultTimeout.
	Timeout time.Duration
	// Lease is how long a claim outlives its owner's last sign of life; default DefaultLease.
	Lease    time.Duration
	Logger   *slog.Logger // nil: nothing is logged
	Observer Observer     // nil: nothing is counted
}

// Format prints where the server is, and no credential.
func (o Options) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "redis("+o.Address+")") }

// MarshalJSON is like Format.
func (o Options) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprint(o)) }

// Store is a replay.Store in a Redis server. Make one with New and end it with Close.
type Store struct {
	opts   Options
	link   link
	health health
	queue  queue
	held   held

	stop    chan struct{} // closed when Close begins
	cancel  context.CancelFunc
	workers sync.WaitGroup // the goroutines that work off the queue
	keepers sync.WaitGroup // the one that renews claims, and the one that probes the server
}

var _ replay.Store = (*Store)(nil)

// New makes a store and starts its goroutines; they end with Close, not with ctx. A server that does not answer within
// a second is no error: the store begins as down and goes on asking. An address that cannot be one is an error.
func New(ctx context.Context, o Options) (*Store, error) {
	o = withDefaults(o)
	client, err := clientOption(o)
	if err != nil {
		return nil, err
	}
	ioCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{
		opts:   o,
		link:   link{option: client},
		health: health{logger: o.Logger, observer: o.Observer, tripped: make(chan struct{}, 1)},
		queue:  queue{jobs: make(chan *job, maxJobs)},
		held:   held{lease: o.Lease, claims: make(map[string]*holding), wake: make(chan struct{}, 1)},
		stop:   make(chan struct{}),
		cancel: cancel,
	}
	if err := s.probe(ioCtx); err != nil {
		s.health.down.Store(true)
		s.health.failed(opProbe, err)
	}
	for range workers {
		s.workers.Go(func() { s.work(ioCtx) })
	}
	s.keepers.Go(func() { s.keepClaims(ioCtx) })
	s.keepers.Go(func() { s.keepProbing(ioCtx) })
	return s, nil
}

func withDefaults(o Options) Options {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func clientOption(o Options) (rueidis.ClientOption, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("redis address %q: %w; write it as HOST:PORT", o.Address, err)
	}
	c := rueidis.ClientOption{
		InitAddress: []string{o.Address}, Username: o.Username, Password: o.Password, ClientName: "brownout",
		Dialer:             net.Dialer{Timeout: ioTimeout},
		ConnWriteTimeout:   stuckTimeout,
		ForceSingleClient:  true,
		DisableCache:       true, // entries change on the server alone
		DisableRetry:       true, // what may be sent again is decided here, in again
		AlwaysPipelining:   true, // a late answer is dropped without dropping its connection
		ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize,
	}
	if o.TLS {
		c.TLSConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	return c, nil
}

// Close refuses new operations, finishes those that were accepted, sends what is still held of claims, and ends the
// store's goroutines. When ctx ends first, what is left is given up and its claims lapse. It is called once.
func (s *Store) Close(ctx context.Context) error {
	close(s.stop)
	s.queue.close()
	abort := context.AfterFunc(ctx, s.cancel)
	defer abort()
	s.workers.Wait()
	s.keepers.Wait()
	s.queue.pending.Wait()
	var err error
	s.held.releaseAll(time.Now())
	if left := s.sendHeld(ctx); left > 0 {
		err = fmt.Errorf("redis %s: %d idempotency keys could not be settled or released; they lapse within %v", s.opts.Address, left, s.opts.Lease)
	}
	s.cancel()
	s.link.close()
	return err
}

// Format prints where the server is, and nothing of what the store holds.
func (s *Store) Format(f fmt.State, _ rune) { s.opts.Format(f, 'v') }

// link is the client, which exists from the first time the server has answered.
type link struct {
	option rueidis.ClientOption

	mu     sync.Mutex // guards client
	client rueidis.Client
}

// errNoClient is what an operation gets before the server has answered once.
var errNoClient = errors.New("not connected yet")

func (l *link) get() (rueidis.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil, errNoClient
	}
	return l.client, nil
}

// dial returns the client, connecting for the first time if need be. Only probe calls it.
func (l *link) dial() (rueidis.Client, error) {
	if c, err := l.get(); err == nil {
		return c, nil
	}
	c, err := rueidis.NewClient(l.option)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", strings.Join(l.option.InitAddress, ","), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = c
	return c, nil
}

func (l *link) close() {
	if c, err := l.get(); err == nil {
		c.Close()
	}
}
