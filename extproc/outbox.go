package extproc

import (
	"sync"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// outboxSize bounds the answers waiting for a blocked Send. While Send blocks the stream reads nothing further, so what
// can pile up is what one message causes: a body message of the largest size, in pieces, and an ending.
const outboxSize = 256

// outbox sends answers in order, one Send at a time. Send may block for as long as the peer does not read; nobody
// but the flusher waits for it.
type outbox struct {
	send func(*pb.ProcessingResponse) error

	mu       sync.Mutex // guards the fields below; not held while sending
	idle     sync.Cond  // signalled when flushing ends; L is &mu
	pending  []*pb.ProcessingResponse
	flushing bool
	closed   bool
}

func newOutbox(send func(*pb.ProcessingResponse) error) *outbox {
	o := &outbox{send: send}
	o.idle.L = &o.mu
	return o
}

// put lines an answer up. False: the outbox is closed or full, and the answer is dropped.
func (o *outbox) put(m *pb.ProcessingResponse) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.pending) >= outboxSize {
		return false
	}
	o.pending = append(o.pending, m)
	return true
}

// flush sends what is pending on this goroutine, unless another does.
func (o *outbox) flush() {
	if o.acquire() {
		o.run()
	}
}

// kick sends what is pending on a goroutine of its own, unless another does. close waits for it.
func (o *outbox) kick() {
	if o.acquire() {
		go o.run()
	}
}

// close drops what is pending, lets no flusher start any more, and returns when a running one is through.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.pending = nil
	for o.flushing {
		o.idle.Wait()
	}
}

func (o *outbox) acquire() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.flushing || o.closed || len(o.pending) == 0 {
		return false
	}
	o.flushing = true
	return true
}

func (o *outbox) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) > 0 {
		batch := o.pending
		o.pending = nil
		o.mu.Unlock()
		err := o.sendAll(batch)
		o.mu.Lock()
		if err != nil { // the stream is gone; its Recv says so too
			o.closed, o.pending = true, nil
		}
	}
	o.flushing = false
	o.idle.Broadcast()
}

func (o *outbox) sendAll(batch []*pb.ProcessingResponse) error {
	for _, m := range batch {
		if err := o.send(m); err != nil {
			return err
		}
	}
	return nil
}
