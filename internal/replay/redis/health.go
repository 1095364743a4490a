package redis

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// The operations that an Observer counts failures of.
const (
	opLookup  = "lookup"
	opSave    = "save"
	opClaim   = "claim"
	opSettle  = "settle"
	opRelease = "release"
	opRenew   = "renew"
	opProbe   = "probe"
)

// Ops lists what Observer.StoreFailed is called with.
func Ops() []string {
	return []string{opLookup, opSave, opClaim, opSettle, opRelease, opRenew, opProbe}
}

const (
	failuresToDown = 5           // in a row
	probeEvery     = time.Second // while the server is down
	logEvery       = time.Second
)

// health says whether the server is worth asking, counts failures, and logs them at most once a second.
type health struct {
	logger   *slog.Logger
	observer Observer // may be nil
	down     atomic.Bool
	inARow   atomic.Int32
	tripped  chan struct{} // has room for one: down has become true

	mu      sync.Mutex // guards the fields below
	logged  time.Time  // when a failure was last logged
	skipped int        // failures since then
}

// worked ends a row of failures.
func (h *health) worked() { h.inARow.Store(0) }

// failedInARow counts a failure of the server. At the last one of a row the server is down.
func (h *health) failedInARow(op string, err error) {
	h.failed(op, err)
	if h.inARow.Add(1) >= failuresToDown && h.down.CompareAndSwap(false, true) {
		select {
		case h.tripped <- struct{}{}:
		default:
		}
	}
}

// failed counts a failure that says nothing new about the server.
func (h *health) failed(op string, err error) {
	if h.observer != nil {
		h.observer.StoreFailed(op)
	}
	if skipped, due := h.logDue(time.Now()); due {
		h.logger.Warn("store failed; requests go on without it", "op", op, "error", err, "down", h.down.Load(), "not_logged", skipped)
	}
}

// logDue says whether a failure may be logged now, and how many were not since the last one.
func (h *health) logDue(now time.Time) (skipped int, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.logged.IsZero() && now.Sub(h.logged) < logEvery {
		h.skipped++
		return 0, false
	}
	skipped, h.skipped, h.logged = h.skipped, 0, now
	return skipped, true
}

// keepProbing asks a server that is down whether it is back, at once and then once a second.
func (s *Store) keepProbing(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.health.tripped:
			tick.Reset(probeEvery)
		case <-tick.C:
		}
		if !s.health.down.Load() {
			continue
		}
		if err := s.probe(ctx); err != nil {
			s.health.failed(opProbe, err)
			continue
		}
		s.health.worked()
		s.health.down.Store(false)
		s.health.logger.Info("store is back", "address", s.opts.Address)
		s.held.wakeUp()
	}
}

// probe connects if need be, and asks for an answer within the store's timeout.
func (s *Store) probe(ctx context.Context) error {
	client, err := s.link.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	// The first answer may have taken a connection, or the end of a pause.
	ping := func() error { return client.Do(ctx, client.B().Ping().Build()).Error() }
	if err := again(ping); err != nil {
		return fmt.Errorf("pinging %s: %w", s.opts.Address, err)
	}
	begun := time.Now()
	if err := ping(); err != nil {
		return fmt.Errorf("pinging %s: %w", s.opts.Address, err)
	}
	if took := time.Since(begun); took > s.opts.Timeout {
		return fmt.Errorf("%s answers in %v, later than store.redis.timeout (%v)", s.opts.Address, took.Round(time.Millisecond), s.opts.Timeout)
	}
	return nil
}
