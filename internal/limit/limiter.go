package limit

import (
	"sync"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// expiriesPerTick bounds the waiters one Tick or Offer gives up on, so that a mass expiry cannot hold the lock long.
const expiriesPerTick = 256

// Config sizes a limiter.
type Config struct {
	Concurrency int // requests in flight; at least 1
	Queue       int // requests waiting; 0 means none may wait
}

// Want is what a request asks for.
type Want struct {
	Priority int       // higher runs first
	Deadline time.Time // earlier runs first among equals
	// LatestStart is the last moment at which starting makes sense; from then on an offer is refused.
	LatestStart time.Time
	// GiveUp is when waiting ends, not after LatestStart; at or before now it means: a slot at once, or nothing.
	GiveUp time.Time
}

// Kind is what the limiter said.
type Kind uint8

// The kinds. Parked is only a decision; GaveUp is only a grant.
const (
	Refused  Kind = iota // nothing is held
	Admitted             // Ticket is set and owned by the receiver
	Parked               // a Grant follows, unless Abandon wins
	GaveUp               // the time to give up came first; nothing is held
)

// Decision is the answer to an Offer.
type Decision struct {
	Kind   Kind
	Reason outcome.Shed // of a Refused
	Ticket *Ticket      // of an Admitted
}

// Grant is what became of a parked request.
type Grant struct {
	Kind   Kind          // Admitted, GaveUp or Refused
	Reason outcome.Shed  // of a Refused
	Ticket *Ticket       // of an Admitted
	Waited time.Duration // time in the queue
	At     time.Time     // when it was decided
}

// Handle names a parked request. The zero Handle names none.
type Handle struct{ w *waiter }

type waiter struct {
	want    Want
	seq     uint64
	arrived time.Time
	deliver func(Grant)
	waiting bool
	pos     [numIndexes]int
}

type delivery struct {
	to func(Grant)
	g  Grant
}

// Limiter caps work in flight. Make one with New.
type Limiter struct {
	mu         sync.Mutex // guards the fields below; nothing blocks, logs or calls out while it is held
	cfg        Config
	used       int
	usedMax    int
	waitingMax int
	seq        uint64
	closed     outcome.Shed // set: every offer is refused with it
	turn       heap
	giveUp     heap
	due        []delivery // decided, not yet delivered
	delivering bool       // somebody is draining due
	service    window     // of requests served well: from slot to end
	first      window     // …and to first content
}

// New makes a limiter. cfg must hold what Config says; the policy room sees to that.
func New(cfg Config) *Limiter {
	return &Limiter{
		cfg:    cfg,
		turn:   heap{which: byTurn, less: beforeTurn},
		giveUp: heap{which: byGiveUp, less: beforeGiveUp},
	}
}

// Offer asks for a slot. Admitted: the caller owns the ticket and calls Done. Parked: deliver is called later, exactly
// once, with no lock held and possibly before Offer returns, unless Abandon wins first. Refused: nothing is held.
func (l *Limiter) Offer(now time.Time, w Want, deliver func(Grant)) (Decision, Handle) {
	l.mu.Lock()
	d, h := l.offerLocked(now, w, deliver)
	l.mu.Unlock()
	l.deliverDue()
	return d, h
}

// offerLocked checks in the seed's order: gone already, free slot, full queue. Unlike the seed it first drops those
// who wait in vain, so that a queue of expired requests is not full.
func (l *Limiter) offerLocked(now time.Time, w Want, deliver func(Grant)) (Decision, Handle) {
	switch {
	case l.closed != outcome.ShedNone:
		return Decision{Kind: Refused, Reason: l.closed}, Handle{}
	case !now.Before(w.LatestStart):
		return Decision{Kind: Refused, Reason: outcome.ShedDeadlineExpired}, Handle{}
	case l.used < l.cfg.Concurrency:
		return Decision{Kind: Admitted, Ticket: l.takeLocked()}, Handle{}
	case !now.Before(w.GiveUp):
		return Decision{Kind: Refused, Reason: outcome.ShedQueueFull}, Handle{}
	}
	l.expireLocked(now)
	if l.turn.len() >= l.cfg.Queue {
		return Decision{Kind: Refused, Reason: outcome.ShedQueueFull}, Handle{}
	}
	l.seq++
	e := &waiter{want: w, seq: l.seq, arrived: now, deliver: deliver, waiting: true}
	l.turn.push(e)
	l.giveUp.push(e)
	l.waitingMax = max(l.waitingMax, l.turn.len())
	return Decision{Kind: Parked}, Handle{e}
}

// Abandon takes a parked request out of the queue. False: it is not waiting; if a grant is on its way, the receiver
// still owns what it brings and must end the ticket.
func (l *Limiter) Abandon(h Handle) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.w == nil || !h.w.waiting {
		return false
	}
	l.removeLocked(h.w)
	return true
}

// NextWake is when Tick has work next, or false.
func (l *Limiter) NextWake() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.giveUp.top(); w != nil {
		return w.want.GiveUp, true
	}
	return time.Time{}, false
}

// Tick gives up on waiters whose time has come, a bounded number of them; NextWake tells whether more are due.
func (l *Limiter) Tick(now time.Time) {
	l.mu.Lock()
	l.expireLocked(now)
	l.mu.Unlock()
	l.deliverDue()
}

// Reconfigure applies new bounds. Slots above a lowered limit run on; a shorter queue refuses only newcomers.
func (l *Limiter) Reconfigure(now time.Time, cfg Config) {
	l.mu.Lock()
	l.cfg = cfg
	l.drainLocked(now)
	l.mu.Unlock()
	l.deliverDue()
}

// Refuse refuses every later offer with reason; what waits goes on waiting. ShedNone opens the limiter again.
func (l *Limiter) Refuse(reason outcome.Shed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = reason
}

// Flush refuses everything that waits with reason. Tickets in flight stay valid.
func (l *Limiter) Flush(now time.Time, reason outcome.Shed) {
	l.mu.Lock()
	for w := l.turn.top(); w != nil; w = l.turn.top() {
		l.decideLocked(w, Grant{Kind: Refused, Reason: reason, At: now})
	}
	l.mu.Unlock()
	l.deliverDue()
}

func (l *Limiter) takeLocked() *Ticket {
	l.used++
	l.usedMax = max(l.usedMax, l.used)
	return &Ticket{l: l}
}

// drainLocked hands free slots to whoever is next; those whose time has passed are dropped first.
func (l *Limiter) drainLocked(now time.Time) {
	for l.used < l.cfg.Concurrency {
		w := l.turn.top()
		if w == nil {
			return
		}
		if !now.Before(w.want.GiveUp) {
			l.decideLocked(w, Grant{Kind: GaveUp, At: now})
			continue
		}
		l.decideLocked(w, Grant{Kind: Admitted, Ticket: l.takeLocked(), At: now})
	}
}

func (l *Limiter) expireLocked(now time.Time) {
	for range expiriesPerTick {
		w := l.giveUp.top()
		if w == nil || now.Before(w.want.GiveUp) {
			return
		}
		l.decideLocked(w, Grant{Kind: GaveUp, At: now})
	}
}

// decideLocked takes w out of the queue and lines its grant up for delivery after unlock.
func (l *Limiter) decideLocked(w *waiter, g Grant) {
	l.removeLocked(w)
	g.Waited = g.At.Sub(w.arrived)
	l.due = append(l.due, delivery{w.deliver, g})
}

func (l *Limiter) removeLocked(w *waiter) {
	l.turn.remove(w)
	l.giveUp.remove(w)
	w.waiting = false
}

// deliverDue calls back in the order of decisions. One goroutine drains at a time; a callback that decides more
// adds to the line instead of recursing.
func (l *Limiter) deliverDue() {
	l.mu.Lock()
	if l.delivering {
		l.mu.Unlock()
		return
	}
	for len(l.due) > 0 {
		batch := l.due
		l.due, l.delivering = nil, true
		l.mu.Unlock()
		for _, d := range batch {
			d.to(d.g)
		}
		l.mu.Lock()
		l.delivering = false
	}
	l.mu.Unlock()
}
