package engine

import (
	"container/heap"
	"sync"
	"time"
)

// clock holds what is to be done at a time, for requests that wait in no queue.
type clock struct {
	mu    sync.Mutex // guards items; not held while calling out
	items alarms
}

type alarm struct {
	at time.Time
	do func(now time.Time) // nil: silenced
}

func (c *clock) add(at time.Time, do func(now time.Time)) *alarm {
	a := &alarm{at, do}
	c.mu.Lock()
	defer c.mu.Unlock()
	heap.Push(&c.items, a)
	return a
}

// silence forgets what an alarm was to do; nil is none.
func (c *clock) silence(a *alarm) {
	if a == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.do = nil
}

// next is when the first is due, or false.
func (c *clock) next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.items) == 0 {
		return time.Time{}, false
	}
	return c.items[0].at, true
}

// tick does what is due.
func (c *clock) tick(now time.Time) {
	for {
		c.mu.Lock()
		if len(c.items) == 0 || now.Before(c.items[0].at) {
			c.mu.Unlock()
			return
		}
		do := heap.Pop(&c.items).(*alarm).do
		c.mu.Unlock()
		if do != nil {
			do(now)
		}
	}
}

// alarms orders by time (container/heap).
type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push adds an alarm.
func (a *alarms) Push(x any) { *a = append(*a, x.(*alarm)) }

// Pop removes the last.
func (a *alarms) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	return last
}
