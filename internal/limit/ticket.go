package limit

import "time"

// Ticket is a held slot. Its owner ends it exactly once; ending it again does nothing.
type Ticket struct {
	l    *Limiter
	done bool // guarded by l.mu
}

// Done frees the slot and hands it on. False: it had been freed already.
func (t *Ticket) Done(now time.Time) bool {
	l := t.l
	l.mu.Lock()
	if t.done {
		l.mu.Unlock()
		return false
	}
	t.done = true
	l.used--
	l.drainLocked(now)
	l.mu.Unlock()
	l.deliverDue()
	return true
}
