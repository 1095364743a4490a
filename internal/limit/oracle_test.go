package limit

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// oracle is the seed's limiter, slow and obvious: a sorted slice. It is what the heaps are tested against. In one thing
// it differs from the seed, as the limiter does: expired requests leave the queue before it counts as full.
type oracle struct {
	max, queue, active int
	line               []oracleEntry
	seq                int
	log                []string
}

type oracleEntry struct {
	id, priority, seq int
	due               time.Time
}

func (o *oracle) offer(now time.Time, id, priority int, due time.Time) {
	switch {
	case !now.Before(due):
		o.say("refused %d deadline_expired", id)
		return
	case o.active < o.max:
		o.active++
		o.say("runs %d", id)
		return
	}
	o.expire(now)
	if len(o.line) >= o.queue {
		o.say("refused %d queue_full", id)
		return
	}
	o.seq++
	o.line = append(o.line, oracleEntry{id, priority, o.seq, due})
	slices.SortFunc(o.line, func(a, b oracleEntry) int {
		if a.priority != b.priority {
			return b.priority - a.priority
		}
		if c := a.due.Compare(b.due); c != 0 {
			return c
		}
		return a.seq - b.seq
	})
}

func (o *oracle) done(now time.Time) {
	o.active--
	o.drain(now)
}

func (o *oracle) drain(now time.Time) {
	for o.active < o.max && len(o.line) > 0 {
		e := o.line[0]
		o.line = o.line[1:]
		if !now.Before(e.due) {
			o.say("gave up %d", e.id)
			continue
		}
		o.active++
		o.say("runs %d", e.id)
	}
}

// expire drops what is due in order of due time, then arrival.
func (o *oracle) expire(now time.Time) {
	due := slices.Clone(o.line)
	due = slices.DeleteFunc(due, func(e oracleEntry) bool { return now.Before(e.due) })
	slices.SortFunc(due, func(a, b oracleEntry) int {
		if c := a.due.Compare(b.due); c != 0 {
			return c
		}
		return a.seq - b.seq
	})
	for _, e := range due {
		o.say("gave up %d", e.id)
	}
	o.line = slices.DeleteFunc(o.line, func(e oracleEntry) bool { return !now.Before(e.due) })
}

func (o *oracle) abandon(id int) {
	o.line = slices.DeleteFunc(o.line, func(e oracleEntry) bool { return e.id == id })
}

func (o *oracle) say(format string, a ...any) { o.log = append(o.log, fmt.Sprintf(format, a...)) }

// TestAgainstTheSeedsLimiter runs random histories through the limiter and the oracle and compares every decision.
func TestAgainstTheSeedsLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Concurrency: rapid.IntRange(1, 4).Draw(t, "slots"), Queue: rapid.IntRange(0, 6).Draw(t, "queue")}
		l, o := New(cfg), &oracle{max: cfg.Concurrency, queue: cfg.Queue}
		var log []string
		var held []*Ticket
		handles := map[int]Handle{}
		now := epoch
		grant := func(id int) func(Grant) {
			return func(g Grant) {
				if g.Kind == GaveUp {
					log = append(log, fmt.Sprintf("gave up %d", id))
					return
				}
				log = append(log, fmt.Sprintf("runs %d", id))
				held = append(held, g.Ticket)
			}
		}
		for id := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "gap")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"offer", "offer", "offer", "done", "tick", "abandon"}).Draw(t, "step") {
			case "offer":
				priority := rapid.SampledFrom([]int{0, 0, 10, -5}).Draw(t, "priority")
				due := now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "due")) * time.Millisecond)
				o.offer(now, id, priority, due)
				d, h := l.Offer(now, Want{Priority: priority, Deadline: due, LatestStart: due, GiveUp: due}, grant(id))
				switch d.Kind {
				case Admitted:
					log, held = append(log, fmt.Sprintf("runs %d", id)), append(held, d.Ticket)
				case Refused:
					log = append(log, fmt.Sprintf("refused %d %s", id, d.Reason))
				case Parked:
					handles[id] = h
				}
			case "done":
				if len(held) > 0 {
					tk := held[0]
					held = held[1:]
					o.done(now)
					tk.Done(now)
					tk.Done(now) // a second Done changes nothing
				}
			case "tick":
				o.expire(now)
				l.Tick(now)
			case "abandon":
				victim := rapid.IntRange(0, id).Draw(t, "victim")
				o.abandon(victim)
				l.Abandon(handles[victim])
			}
			if !slices.Equal(log, o.log) {
				t.Fatalf("limiter:\n%v\noracle:\n%v", log, o.log)
			}
			if s := l.Stats(); s.Used > cfg.Concurrency || s.Used != o.active || s.Waiting != len(o.line) || (s.Waiting > 0 && s.Used < s.Limit) {
				t.Fatalf("stats %+v, oracle active %d waiting %d", s, o.active, len(o.line))
			}
		}
	})
}

// TestHammer lets goroutines offer, end, abandon, tick, resize and read at once: nothing is lost, nothing counted twice.
func TestHammer(t *testing.T) {
	l := New(Config{Concurrency: 8, Queue: 32})
	var running, most, granted, gaveUp, refused, admitted, abandoned atomic.Int64
	run := func(tk *Ticket) {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		running.Add(-1)
		tk.Done(time.Now())
		tk.Done(time.Now())
	}
	var offers atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				now := time.Now()
				d := now.Add(time.Duration(i%7) * 100 * time.Microsecond)
				offers.Add(1)
				dec, h := l.Offer(now, Want{Priority: i % 3, Deadline: d, LatestStart: d, GiveUp: d}, func(g Grant) {
					if g.Kind == Admitted {
						granted.Add(1)
						run(g.Ticket)
						return
					}
					gaveUp.Add(1)
				})
				switch dec.Kind {
				case Admitted:
					admitted.Add(1)
					run(dec.Ticket)
				case Refused:
					refused.Add(1)
				case Parked:
					if i%2 == 0 && l.Abandon(h) {
						abandoned.Add(1)
					}
				}
				switch {
				case g == 0 && i%50 == 0:
					l.Reconfigure(now, Config{Concurrency: 4 + i%5, Queue: 16 + i%17})
				case g == 1:
					l.Tick(now)
				case g == 2:
					l.Stats()
					l.Waiters(now, 5)
				}
			}
		})
	}
	wg.Wait()
	l.Flush(time.Now(), outcome.ShedShuttingDown) // what still waits is refused, and counted as given up
	sum := admitted.Load() + refused.Load() + granted.Load() + gaveUp.Load() + abandoned.Load()
	if sum != offers.Load() {
		t.Errorf("%d offers, %d accounted for", offers.Load(), sum)
	}
	if s := l.Stats(); s.Used != 0 || s.Waiting != 0 {
		t.Errorf("left over: %+v", s)
	}
	if most.Load() > 8 {
		t.Errorf("%d ran at once on at most 8 slots", most.Load())
	}
}
