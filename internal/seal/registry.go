package seal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// maxID is the longest request id, a decimal number of 64 bits.
const maxID = 20

// errCancelled is why Cancel ended a request, errFinished why Finish did.
var (
	errCancelled = errors.New("cancelled by its session")
	errFinished  = errors.New("finished by its session")
)

// registry finds the requests in flight by their ids.
type registry struct {
	mu      sync.Mutex // guards the fields below; not held while cancelling
	idle    *sync.Cond // on mu: running has become 0
	byID    map[string][]*exchange
	running int
	closed  bool
}

func newRegistry() *registry {
	r := &registry{byID: make(map[string][]*exchange)}
	r.idle = sync.NewCond(&r.mu)
	return r
}

// exchange is one request in flight.
type exchange struct {
	id      string // "": the request has no usable id, so nobody can ask for it
	cancel  context.CancelCauseFunc
	writing atomic.Bool // a piece of the answer waits to be taken
}

// requestID is the id the session gave a request, "" if it has none or something else.
func requestID(values []string) string {
	if len(values) != 1 || len(values[0]) == 0 || len(values[0]) > maxID {
		return ""
	}
	for _, c := range []byte(values[0]) {
		if c < '0' || c > '9' {
			return ""
		}
	}
	return values[0]
}

// add registers a request until remove; false once the registry is closed, and then nothing is registered.
func (r *registry) add(x *exchange) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running++
	if x.id != "" {
		r.byID[x.id] = append(r.byID[x.id], x)
	}
	return true
}

func (r *registry) remove(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running--; r.running == 0 {
		r.idle.Broadcast()
	}
	if x.id == "" {
		return
	}
	rest := slices.DeleteFunc(r.byID[x.id], func(o *exchange) bool { return o == x })
	if len(rest) == 0 {
		delete(r.byID, x.id)
		return
	}
	r.byID[x.id] = rest
}

func (r *registry) end(id string, why error) bool {
	r.mu.Lock()
	list := slices.Clone(r.byID[id])
	r.mu.Unlock()
	for _, x := range list {
		x.cancel(why)
	}
	return len(list) > 0
}

// writing says whether an answer under that id waits to be taken.
func (r *registry) writing(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.byID[id], func(x *exchange) bool { return x.writing.Load() })
}

// close takes no further request and returns when none is registered.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for r.running > 0 {
		r.idle.Wait()
	}
}

// inFlight is how many requests are registered, with or without an id.
func (r *registry) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}
