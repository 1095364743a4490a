package stub

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats are the counters of GET /stub/stats. Counts are since the last reset.
type Stats struct {
	Inflight      int         `json:"inflight"`        // model calls not yet ended: waiting in the hidden queue or running
	InflightMax   int         `json:"inflight_max"`    // most of them at once
	Queued        int         `json:"queued"`          // of Inflight: waiting for a slot
	QueuedMax     int         `json:"queued_max"`      // most of them at once
	Arrived       int         `json:"arrived"`         // model calls received whole
	Started       int         `json:"started"`         // model calls that took a slot
	Finished      int         `json:"finished"`        // ended by the stub while the client was there, in whatever mode
	Cancelled     int         `json:"cancelled"`       // stopped because the client left
	Wasted        int         `json:"wasted"`          // work that ran to its end after its client had left
	Throttled     int         `json:"throttled"`       // refused at the door by mode throttle
	StartedByWave map[int]int `json:"started_by_wave"` // Started by the request's x-stub-wave; without the header, not here
}

// counters guards a Stats. Its methods do not block.
type counters struct {
	serial atomic.Uint64 // arrival numbers of requests without an id

	mu    sync.Mutex // guards the fields below
	stats Stats
	epoch int // resets so far
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.stats
	out.StartedByWave = make(map[int]int, len(c.stats.StartedByWave))
	maps.Copy(out.StartedByWave, c.stats.StartedByWave)
	return out
}

func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, queued := c.stats.Inflight, c.stats.Queued
	c.stats = Stats{Inflight: in, InflightMax: in, Queued: queued, QueuedMax: queued}
	c.epoch++
}

// arrive counts a call in and returns the epoch its end is counted in.
func (c *counters) arrive() (epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Arrived++
	c.stats.Inflight++
	c.stats.InflightMax = max(c.stats.InflightMax, c.stats.Inflight)
	return c.epoch
}

// throttle counts a call that is refused at the door: it is never in flight.
func (c *counters) throttle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Arrived++
	c.stats.Throttled++
}

func (c *counters) queue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Queued++
	c.stats.QueuedMax = max(c.stats.QueuedMax, c.stats.Queued)
}

func (c *counters) unqueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Queued--
}

func (c *counters) start(epoch, wave int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return // it arrived before a reset
	}
	c.stats.Started++
	if wave == 0 {
		return
	}
	if c.stats.StartedByWave == nil {
		c.stats.StartedByWave = make(map[int]int)
	}
	c.stats.StartedByWave[wave]++ // at most MaxWave keys
}

// ending is how a call left the stub.
type ending int

const (
	endFinished ending = iota + 1
	endCancelled
	endWasted
)

func (c *counters) end(epoch int, e ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Inflight--
	if epoch != c.epoch {
		return // it arrived before a reset
	}
	switch e {
	case endFinished:
		c.stats.Finished++
	case endCancelled:
		c.stats.Cancelled++
	case endWasted:
		c.stats.Wasted++
	}
}
