package stub

import (
	"context"
	"time"
)

// call is one model call from arrival to end. It belongs to the goroutine of its handler.
type call struct {
	s     *Stub
	gone  <-chan struct{} // closed when the client has left
	epoch int
	wave  int
	place *place // nil until acquire
	ended bool
}

func (s *Stub) begin(ctx context.Context, wave int) *call {
	return &call{s: s, gone: ctx.Done(), epoch: s.count.arrive(), wave: wave}
}

// acquire waits for a slot. On errLeft the call is over.
func (c *call) acquire() error {
	c.place = c.s.slots.enter()
	select {
	case <-c.place.granted:
	default:
		c.s.count.queue()
		err := until(c, c.place.granted)
		c.s.count.unqueue()
		if err != nil {
			return err
		}
	}
	c.s.count.start(c.epoch, c.wave)
	return nil
}

// work holds the slot for d. On errLeft the call is over.
func (c *call) work(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	return until(c, t.C)
}

// until waits for done. With KeepRunning only the end of the stub itself cuts the wait short.
func until[T any](c *call, done <-chan T) error {
	gone := c.gone
	if c.s.cfg.KeepRunning {
		gone = nil
	}
	select {
	case <-done:
		return nil
	case <-gone:
		return errLeft
	case <-c.s.stop:
		return errLeft
	}
}

func (c *call) left() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// complete ends the call before its last bytes are written, so that whoever reads them finds the slot free and a client
// that hangs up right after them is not taken for one that left early.
func (c *call) complete() {
	if c.left() {
		c.end(endWasted)
		return
	}
	c.end(endFinished)
}

// abandon ends a call that did not complete.
func (c *call) abandon() { c.end(endCancelled) }

func (c *call) end(e ending) {
	if c.ended {
		return
	}
	c.ended = true
	if c.place != nil {
		c.s.slots.leave(c.place)
	}
	c.s.count.end(c.epoch, e)
}
