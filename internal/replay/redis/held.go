package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/envoy-brownout/brownout/internal/replay"
)

const (
	sendAgainFor = 10 * time.Minute // how long an answer that cannot be settled is held and tried again
	batchSize    = 128              // claims in one round trip
)

// held are the claims that this store owns, and what is still to be told to the server of those that have ended.
type held struct {
	lease time.Duration
	wake  chan struct{} // has room for one: look at the claims now

	mu     sync.Mutex // guards the fields below
	claims map[string]*holding
	bytes  int64 // of answers that are held
}

// holding is one claim. It is immutable; another state is another holding.
type holding struct {
	claim  replay.Claim
	ended  bool          // it is to be settled or released
	entry  *replay.Entry // of one to be settled
	keepTo time.Time     // until when its record is kept
	giveUp time.Time     // of an ended one: until when it is tried to say so
}

func (h *held) wakeUp() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// add begins to renew a claim.
func (h *held) add(c replay.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims[c.Token] = &holding{claim: c}
}

// settle ends a claim with an answer. It says whether there is anything to send; a claim that has been ended before stays
// as it is, and one whose answer there is no room for is released.
func (h *held) settle(now time.Time, c replay.Claim, e *replay.Entry, keep time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.claims[c.Token]
	if old == nil || old.ended {
		return false
	}
	next := &holding{claim: c, ended: true, giveUp: now.Add(h.lease)}
	if size := int64(e.Size()); h.bytes+size <= maxBytes {
		next.entry, next.keepTo, next.giveUp = e, now.Add(keep), now.Add(min(keep, sendAgainFor))
		h.bytes += size
	}
	h.claims[c.Token] = next
	return true
}

// release ends a claim without an answer. It takes one that was never added: the server may know it.
func (h *held) release(now time.Time, c replay.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.claims[c.Token]; old != nil && old.ended {
		return
	}
	h.claims[c.Token] = &holding{claim: c, ended: true, giveUp: now.Add(h.lease)}
}

// get finds a claim by its token, nil if it is over.
func (h *held) get(token string) *holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims[token]
}

// over forgets a holding that the server has been told of, unless it has changed since.
func (h *held) over(g *holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims[g.claim.Token] != g {
		return
	}
	delete(h.claims, g.claim.Token)
	if g.entry != nil {
		h.bytes -= int64(g.entry.Size())
	}
}

// releaseAll ends every claim whose owner has not.
func (h *held) releaseAll(now time.Time) {
	for _, g := range h.all() {
		h.release(now, g.claim)
	}
}

func (h *held) all() []*holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*holding, 0, len(h.claims))
	for _, g := range h.claims {
		out = append(out, g)
	}
	return out
}

// command is what tells the server where a claim stands: it renews it, settles it or releases it. If somebody else has taken
// the key by now, it does nothing.
func (s *Store) command(client rueidis.Client, g *holding, now time.Time) rueidis.Completed {
	script, args := renewScript, []string{rueidis.BinaryString(claimValue(g.claim)), milliseconds(s.opts.Lease)}
	switch g.op() {
	case opSettle:
		record := rueidis.BinaryString(recordValue(g.claim, g.entry))
		script, args = settleScript, []string{args[0], record, milliseconds(max(g.keepTo.Sub(now), time.Millisecond))}
	case opRelease:
		script, args = dropScript, args[:1]
	}
	return evalCommand(client, script, s.claimKey(g.claim.Key), args...)
}

func (g *holding) op() string {
	switch {
	case !g.ended:
		return opRenew
	case g.entry != nil:
		return opSettle
	}
	return opRelease
}

// send tells the server how a claim ended.
func (s *Store) send(ctx context.Context, token string) error {
	g := s.held.get(token)
	if g == nil || !g.ended {
		return nil
	}
	client, err := s.link.get()
	if err != nil {
		return err
	}
	if err := client.Do(ctx, s.command(client, g, time.Now())).Error(); err != nil {
		return err
	}
	s.held.over(g)
	return nil
}

// keepClaims renews what is held every third of a lease, and sends again what could not be sent.
func (s *Store) keepClaims(ctx context.Context) {
	tick := time.NewTicker(max(s.opts.Lease/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		case <-s.held.wake:
		}
		s.sendHeld(ctx)
	}
}

// sendHeld tells the server where every claim stands, a batch of them in one round trip, and forgets those that have been
// tried for too long. It returns how many are held afterwards.
func (s *Store) sendHeld(ctx context.Context) (left int) {
	now := time.Now()
	var send []*holding
	for _, g := range s.held.all() {
		if g.ended && now.After(g.giveUp) {
			s.held.over(g)
			continue
		}
		send = append(send, g)
	}
	for batch := range slices.Chunk(send, batchSize) {
		if s.health.down.Load() || s.sendBatch(ctx, batch, now) != nil {
			break
		}
	}
	return len(s.held.all())
}

// sendBatch returns an error if the server could not be asked; one that it answered for one claim is counted.
func (s *Store) sendBatch(ctx context.Context, batch []*holding, now time.Time) error {
	client, err := s.link.get()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	err = again(func() error { return s.tryBatch(ctx, client, batch, now) })
	if err != nil {
		s.health.failedInARow(batch[0].op(), err)
		return err
	}
	s.health.worked()
	return nil
}

func (s *Store) tryBatch(ctx context.Context, client rueidis.Client, batch []*holding, now time.Time) error {
	commands := make([]rueidis.Completed, 0, len(batch))
	for _, g := range batch {
		commands = append(commands, s.command(client, g, now))
	}
	for i, r := range client.DoMulti(ctx, commands...) {
		g := batch[i]
		switch err := r.Error(); {
		case err == nil && g.ended:
			s.held.over(g)
		case err != nil && r.NonRedisError() != nil:
			return err
		case err != nil:
			s.health.failed(g.op(), err)
		}
	}
	return nil
}
