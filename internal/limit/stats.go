package limit

import (
	"slices"
	"time"
)

// Stats are a limiter's figures at one instant.
type Stats struct {
	Limit      int // slots
	Queue      int // waiting places
	Used       int // slots held
	UsedMax    int // most slots held since the start or the last ResetMax
	Waiting    int // waiting now
	WaitingMax int // most waiting since the start or the last ResetMax
}

// Stats reads the figures.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Limit: l.cfg.Concurrency, Queue: l.cfg.Queue,
		Used: l.used, UsedMax: l.usedMax, Waiting: l.turn.len(), WaitingMax: l.waitingMax,
	}
}

// ResetMax starts the maxima afresh from the present values.
func (l *Limiter) ResetMax() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usedMax, l.waitingMax = l.used, l.turn.len()
}

// Waiter is one waiting request in a dump.
type Waiter struct {
	Priority int
	Waited   time.Duration
	GivesUp  time.Duration // from now
	Deadline time.Duration // from now
}

// Waiters lists up to limit waiting requests in the order they would run.
func (l *Limiter) Waiters(now time.Time, limit int) []Waiter {
	l.mu.Lock()
	line := make([]waiter, 0, l.turn.len())
	for _, w := range l.turn.items {
		line = append(line, *w)
	}
	l.mu.Unlock()
	slices.SortFunc(line, func(a, b waiter) int {
		if beforeTurn(&a, &b) {
			return -1
		}
		return 1
	})
	out := make([]Waiter, 0, min(limit, len(line)))
	for _, w := range line[:min(limit, len(line))] {
		out = append(out, Waiter{w.want.Priority, now.Sub(w.arrived), w.want.GiveUp.Sub(now), w.want.Deadline.Sub(now)})
	}
	return out
}
