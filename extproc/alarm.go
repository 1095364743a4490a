package extproc

import (
	"sync"
	"time"
)

// alarm is one timer for everything that waits in queues: it ticks the engine when the first of them gives up.
type alarm struct {
	next func() (time.Time, bool)
	tick func(time.Time)

	mu      sync.Mutex // guards the fields below; not held while ticking
	timer   *time.Timer
	at      time.Time // when timer fires; zero: not armed
	stopped bool
}

// arm makes sure the alarm rings at or before t.
func (a *alarm) arm(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped || (!a.at.IsZero() && !t.Before(a.at)) {
		return
	}
	a.at = t
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(t), a.ring)
		return
	}
	a.timer.Reset(time.Until(t))
}

func (a *alarm) ring() {
	a.mu.Lock()
	a.at = time.Time{}
	a.mu.Unlock()
	a.tick(time.Now())
	if t, ok := a.next(); ok {
		a.arm(t)
	}
}

// stop silences the alarm for good.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
