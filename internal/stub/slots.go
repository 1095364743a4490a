package stub

import (
	"container/list"
	"sync"
)

// slots hands out a number of places to run, first come first served, with a queue that has no bound: the queue real
// model servers hide behind a 200.
type slots struct {
	mu      sync.Mutex // guards free and waiting
	limited bool
	free    int
	waiting *list.List // of *place
}

func newSlots(n int) *slots { return &slots{limited: n > 0, free: n, waiting: list.New()} }

// place is one caller's position: it holds a slot once granted is closed, and leaves exactly once.
type place struct {
	granted chan struct{}
	entry   *list.Element // nil once granted; guarded by slots.mu
}

func (s *slots) enter() *place {
	p := &place{granted: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.limited:
		close(p.granted)
	case s.free > 0:
		s.free--
		close(p.granted)
	default:
		p.entry = s.waiting.PushBack(p)
	}
	return p
}

// leave gives up the wait, or hands the slot to the one who waits longest.
func (s *slots) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.limited {
		return
	}
	if p.entry != nil {
		s.waiting.Remove(p.entry)
		p.entry = nil
		return
	}
	front := s.waiting.Front()
	if front == nil {
		s.free++
		return
	}
	next := s.waiting.Remove(front).(*place)
	next.entry = nil
	close(next.granted)
}
