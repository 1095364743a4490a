package limit

import (
	"testing"
	"time"
)

// BenchmarkOfferDone is one request that finds a free slot.
func BenchmarkOfferDone(b *testing.B) {
	l := New(Config{Concurrency: 1 << 30, Queue: 0})
	w := want(0, 1000)
	b.ReportAllocs()
	for b.Loop() {
		d, _ := l.Offer(epoch, w, nil)
		d.Ticket.Done(epoch)
	}
}

// BenchmarkDispatch is one request that waits behind 5,000 others for one of 100 slots and is granted one.
func BenchmarkDispatch(b *testing.B) {
	l := New(Config{Concurrency: 100, Queue: 10_000})
	held := make(chan *Ticket, 20_000)
	grant := func(g Grant) { held <- g.Ticket }
	for i := range 5_100 {
		if d, _ := l.Offer(epoch, want(i%8, 1000+i), grant); d.Ticket != nil {
			held <- d.Ticket
		}
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		l.Offer(epoch, want(i%8, 1000+i%997), grant)
		(<-held).Done(epoch)
	}
}

// BenchmarkAbandon is one request that joins a queue of 5,000 and leaves it.
func BenchmarkAbandon(b *testing.B) {
	l := New(Config{Concurrency: 1, Queue: 10_000})
	for i := range 5_001 {
		l.Offer(epoch, want(i%8, 1000+i), func(Grant) {})
	}
	b.ReportAllocs()
	for b.Loop() {
		_, h := l.Offer(epoch, want(3, 2000), func(Grant) {})
		l.Abandon(h)
	}
}

// TestOfferAllocates keeps the budget: a ticket for a free slot, a queue entry besides for a wait.
func TestOfferAllocates(t *testing.T) {
	l := New(Config{Concurrency: 1 << 30, Queue: 0})
	w := Want{Deadline: epoch.Add(time.Second), LatestStart: epoch.Add(time.Second), GiveUp: epoch.Add(time.Second)}
	if n := testing.AllocsPerRun(100, func() { d, _ := l.Offer(epoch, w, nil); d.Ticket.Done(epoch) }); n > 1 {
		t.Errorf("a free slot allocates %v times, want at most 1", n)
	}
}
