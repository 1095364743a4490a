package limit

import (
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// want is a request that may start and wait until its deadline, ms after epoch.
func want(priority, ms int) Want {
	return Want{Priority: priority, Deadline: at(ms), LatestStart: at(ms), GiveUp: at(ms)}
}

// caller collects what becomes of parked requests.
type caller struct {
	order []string
	got   map[string]Grant
}

func newCaller() *caller { return &caller{got: map[string]Grant{}} }

func (c *caller) take(name string) func(Grant) {
	return func(g Grant) {
		c.order = append(c.order, name)
		c.got[name] = g
	}
}

// fill takes every slot of l.
func fill(t *testing.T, l *Limiter, n int) []*Ticket {
	t.Helper()
	tickets := make([]*Ticket, n)
	for i := range tickets {
		d, _ := l.Offer(at(0), want(0, 60_000), nil)
		if d.Kind != Admitted {
			t.Fatalf("slot %d: got %v, want a slot", i, d)
		}
		tickets[i] = d.Ticket
	}
	return tickets
}

func TestSlotsThenQueueThenRefusal(t *testing.T) {
	l := New(Config{Concurrency: 4, Queue: 8})
	count := map[Kind]int{}
	for range 60 {
		d, _ := l.Offer(at(0), want(0, 1000), func(Grant) {})
		count[d.Kind]++
		if d.Kind == Refused && d.Reason != outcome.ShedQueueFull {
			t.Fatalf("refused for %s, want queue_full", d.Reason)
		}
	}
	if count[Admitted] != 4 || count[Parked] != 8 || count[Refused] != 48 {
		t.Fatalf("got %v, want 4 admitted, 8 parked, 48 refused", count)
	}
	if s := l.Stats(); s.UsedMax != 4 || s.WaitingMax != 8 {
		t.Fatalf("maxima %+v, want 4 and 8", s)
	}
}

func TestPriorityThenDeadlineThenArrival(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 10}), newCaller()
	held := fill(t, l, 1)
	for _, r := range []struct {
		name          string
		priority, due int
	}{{"batch-late", 0, 900}, {"batch-soon", 0, 500}, {"high-late", 10, 950}, {"high-soon", 10, 600}, {"batch-soon-2", 0, 500}} {
		l.Offer(at(1), want(r.priority, r.due), c.take(r.name))
	}
	next := held[0]
	for _, name := range []string{"high-soon", "high-late", "batch-soon", "batch-soon-2", "batch-late"} {
		next.Done(at(10))
		g := c.got[name]
		if g.Kind != Admitted {
			t.Fatalf("order %v: %s should run now", c.order, name)
		}
		if g.Waited != 9*time.Millisecond {
			t.Errorf("%s waited %s, want 9ms", name, g.Waited)
		}
		next = g.Ticket
	}
}

func TestExpiredEntriesAreDroppedBeforeAdmission(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 10}), newCaller()
	held := fill(t, l, 1)
	l.Offer(at(0), want(10, 100), c.take("expired"))
	l.Offer(at(0), want(0, 500), c.take("live"))
	held[0].Done(at(100))
	if c.got["expired"].Kind != GaveUp || c.got["live"].Kind != Admitted {
		t.Fatalf("got %v: want the expired one given up and the live one admitted", c.got)
	}
}

func TestTickGivesUpAtTheTimeAndNotBefore(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 10}), newCaller()
	fill(t, l, 1)
	l.Offer(at(0), want(0, 300), c.take("b"))
	l.Offer(at(0), want(0, 200), c.take("a"))
	if wake, ok := l.NextWake(); !ok || !wake.Equal(at(200)) {
		t.Fatalf("next wake %v %t, want 200 ms", wake, ok)
	}
	l.Tick(at(199))
	if len(c.order) != 0 {
		t.Fatalf("gave up early: %v", c.order)
	}
	l.Tick(at(200))
	l.Tick(at(300))
	if got := c.order; len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Fatalf("gave up %v, want a then b", got)
	}
	if _, ok := l.NextWake(); ok {
		t.Fatal("an empty queue wants to be woken")
	}
}

func TestAMassExpiryIsDoneInSlices(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 2000}), newCaller()
	fill(t, l, 1)
	for range 1000 {
		l.Offer(at(0), want(0, 10), c.take("x"))
	}
	l.Tick(at(10))
	if len(c.order) != expiriesPerTick {
		t.Fatalf("one tick gave up on %d, want %d", len(c.order), expiriesPerTick)
	}
	for wake, ok := l.NextWake(); ok; wake, ok = l.NextWake() {
		l.Tick(wake)
	}
	if len(c.order) != 1000 {
		t.Fatalf("gave up on %d, want 1000", len(c.order))
	}
}

func TestAnUnwillingToWaitTakesASlotOrIsRefused(t *testing.T) {
	l := New(Config{Concurrency: 1, Queue: 10})
	w := want(0, 1000)
	w.GiveUp = at(0)
	d, _ := l.Offer(at(0), w, nil)
	if d.Kind != Admitted {
		t.Fatalf("got %+v, want the free slot", d)
	}
	if d, _ = l.Offer(at(0), w, nil); d.Kind != Refused || d.Reason != outcome.ShedQueueFull {
		t.Fatalf("got %+v, want queue_full", d)
	}
}

func TestAnOfferAfterItsLatestStartIsRefusedEvenWithAFreeSlot(t *testing.T) {
	l := New(Config{Concurrency: 1, Queue: 1})
	d, _ := l.Offer(at(100), want(0, 100), nil)
	if d.Kind != Refused || d.Reason != outcome.ShedDeadlineExpired {
		t.Fatalf("got %+v, want deadline_expired", d)
	}
}

func TestATicketFreesItsSlotOnce(t *testing.T) {
	l := New(Config{Concurrency: 2, Queue: 0})
	held := fill(t, l, 2)
	if !held[0].Done(at(1)) || held[0].Done(at(2)) {
		t.Fatal("the first Done must free the slot, the second nothing")
	}
	if s := l.Stats(); s.Used != 1 {
		t.Fatalf("%d slots used, want 1", s.Used)
	}
}

func TestAbandonLosesAgainstAGrant(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 2}), newCaller()
	held := fill(t, l, 1)
	_, first := l.Offer(at(0), want(0, 500), c.take("first"))
	_, second := l.Offer(at(0), want(0, 600), c.take("second"))
	if !l.Abandon(second) || l.Abandon(second) {
		t.Fatal("a waiting request is abandoned once")
	}
	held[0].Done(at(5))
	if l.Abandon(first) {
		t.Fatal("abandoned after the grant")
	}
	if len(c.order) != 1 || c.order[0] != "first" {
		t.Fatalf("delivered %v, want first only", c.order)
	}
	if l.Abandon(Handle{}) {
		t.Fatal("the zero handle was abandoned")
	}
}

func TestReconfigure(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 3}), newCaller()
	held := fill(t, l, 1)
	for _, n := range []string{"a", "b", "c"} {
		l.Offer(at(0), want(0, 500), c.take(n))
	}
	l.Reconfigure(at(1), Config{Concurrency: 1, Queue: 1})
	if l.Stats().Waiting != 3 {
		t.Fatal("a shorter queue must keep its waiters")
	}
	if d, _ := l.Offer(at(1), want(0, 500), nil); d.Reason != outcome.ShedQueueFull {
		t.Fatalf("got %+v, want a newcomer refused", d)
	}
	l.Reconfigure(at(2), Config{Concurrency: 3, Queue: 1})
	if len(c.order) != 2 {
		t.Fatalf("a raised limit admitted %v, want two at once", c.order)
	}
	l.Reconfigure(at(3), Config{Concurrency: 1, Queue: 1})
	held[0].Done(at(4))
	if len(c.order) != 2 {
		t.Fatal("a lowered limit must not admit while more slots than it are held")
	}
}

func TestRefuseAndFlush(t *testing.T) {
	l, c := New(Config{Concurrency: 1, Queue: 3}), newCaller()
	fill(t, l, 1)
	l.Offer(at(0), want(0, 500), c.take("waits"))
	l.Refuse(outcome.ShedShuttingDown)
	if len(c.order) != 0 {
		t.Fatal("Refuse must leave what waits alone")
	}
	l.Flush(at(1), outcome.ShedShuttingDown)
	if g := c.got["waits"]; g.Kind != Refused || g.Reason != outcome.ShedShuttingDown {
		t.Fatalf("got %+v, want shutting_down", g)
	}
	if d, _ := l.Offer(at(2), want(0, 500), nil); d.Reason != outcome.ShedShuttingDown {
		t.Fatalf("got %+v, want shutting_down", d)
	}
}

func TestACallbackMayUseTheLimiter(t *testing.T) {
	l := New(Config{Concurrency: 1, Queue: 1000})
	held := fill(t, l, 1)
	served := 0
	for range 1000 {
		l.Offer(at(0), want(0, 500), func(g Grant) {
			served++
			g.Ticket.Done(at(1)) // hands the slot on from within the delivery: must not recurse
		})
	}
	held[0].Done(at(1))
	if s := l.Stats(); served != 1000 || s.Used != 0 || s.Waiting != 0 {
		t.Fatalf("served %d, stats %+v", served, s)
	}
}

func TestWaitersListsInTurn(t *testing.T) {
	l := New(Config{Concurrency: 1, Queue: 5})
	fill(t, l, 1)
	l.Offer(at(0), want(0, 700), func(Grant) {})
	l.Offer(at(5), want(10, 900), func(Grant) {})
	got := l.Waiters(at(10), 1)
	if len(got) != 1 || got[0] != (Waiter{10, 5 * time.Millisecond, 890 * time.Millisecond, 890 * time.Millisecond}) {
		t.Fatalf("got %+v", got)
	}
	l.ResetMax()
	if s := l.Stats(); s.WaitingMax != 2 || s.UsedMax != 1 {
		t.Fatalf("maxima after reset %+v, want the present values", s)
	}
}
