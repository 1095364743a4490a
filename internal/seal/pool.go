package seal

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// streamsPerConn is how many requests share a connection to the inner listener. Envoy serves a connection on one
	// worker thread, so a few spread the load; it is below what any HTTP/2 server allows.
	streamsPerConn = 32
	// requestsPerConn is how many requests a connection takes in its life. Envoy closes a connection, with every answer on
	// it, on which more than half of 500 requests were cancelled before they were answered
	// (overload.premature_reset_total_stream_count); a connection of the seal's never gets there.
	requestsPerConn = 200
	// dialTimeout bounds a connect to the inner listener, which is on this machine.
	dialTimeout = time.Second
	// innerAddr names the inner listener to net/http; Dial does not look at it.
	innerAddr = "inner:80"
)

var errClosed = errors.New("the seal is closed")

// pool holds the connections to the inner listener.
type pool struct {
	transport *http.Transport

	mu      sync.Mutex // guards the fields below; not held while connecting
	conns   []*conn
	dialing *dialing // the connect in progress, nil if none; one at a time serves everybody who waits
	closed  bool
}

// conn is one connection. Its counters belong to the pool's mutex.
type conn struct {
	*http.ClientConn
	started, inflight int
}

// dialing is a connect that several requests wait for.
type dialing struct {
	done chan struct{} // closed when err is set
	err  error
}

func newPool(dial func(ctx context.Context) (net.Conn, error)) *pool {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &pool{transport: &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		Protocols:              protocols,
		DisableCompression:     true, // or it would ask for gzip and unpack the answer
		MaxResponseHeaderBytes: maxHeader,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow},
	}}
}

// acquire returns a connection with room for one request. The caller makes exactly one RoundTrip on it and then
// releases it, once nothing of that request is in use any more.
func (p *pool) acquire(ctx context.Context) (*conn, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errClosed
		}
		if c := p.freeLocked(); c != nil {
			p.mu.Unlock()
			return c, nil
		}
		d, mine := p.dialing, p.dialing == nil
		if mine {
			d = &dialing{done: make(chan struct{})}
			p.dialing = d
		}
		p.mu.Unlock()
		if mine {
			p.connect(ctx, d)
		}
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if d.err != nil {
			return nil, d.err
		}
	}
}

// freeLocked takes a place on a connection, nil if none has one. Connections that can take no further request are
// forgotten; release closes them after their last one.
func (p *pool) freeLocked() *conn {
	for _, c := range slices.Clone(p.conns) {
		switch {
		case c.inflight >= streamsPerConn:
			continue
		case c.started >= requestsPerConn, c.Reserve() != nil: // the inner listener has closed it, or is about to
			p.retireLocked(c)
			continue
		}
		c.started++
		c.inflight++
		return c
	}
	return nil
}

// retireLocked forgets a connection; the one that is idle is closed, another after its last request.
func (p *pool) retireLocked(c *conn) {
	p.conns = slices.DeleteFunc(p.conns, func(o *conn) bool { return o == c })
	if c.inflight == 0 {
		_ = c.Close() // nothing uses it
	}
}

// connect makes a connection and tells everybody who waits for it. It outlives the request that asked first: others wait
// too.
func (p *pool) connect(ctx context.Context, d *dialing) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	cc, err := p.transport.NewClientConn(ctx, "http", innerAddr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = nil
	switch {
	case err != nil:
		d.err = err
	case p.closed:
		d.err = errors.Join(errClosed, cc.Close())
	default:
		p.conns = append(p.conns, &conn{ClientConn: cc})
	}
	close(d.done)
}

// release gives a place back. One idle connection stays, for the next request; others that a busy hour has left are
// closed.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.inflight--
	if c.inflight == 0 && (!slices.Contains(p.conns, c) || slices.ContainsFunc(p.conns, func(o *conn) bool { return o != c && o.inflight == 0 })) {
		p.retireLocked(c)
	}
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// close closes every connection. No request may be using one.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing uses it
	}
	p.transport.CloseIdleConnections()
}
