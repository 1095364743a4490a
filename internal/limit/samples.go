package limit

import (
	"slices"
	"time"
)

// windowSize is how many of the latest durations count.
const windowSize = 64

// window holds the latest durations of one kind and their median.
type window struct {
	latest []time.Duration // a ring of up to windowSize
	next   int
	sorted []time.Duration
	median time.Duration
	stale  bool // median is behind latest
}

func (w *window) add(d time.Duration) {
	w.stale = true
	if len(w.latest) < windowSize {
		w.latest = append(w.latest, d)
		return
	}
	w.latest[w.next] = d
	w.next = (w.next + 1) % windowSize
}

// read is the median and how many durations it stands on; 0 and 0 when there are none.
func (w *window) read() (time.Duration, int) {
	if w.stale {
		w.sorted = append(w.sorted[:0], w.latest...)
		slices.Sort(w.sorted)
		w.median, w.stale = w.sorted[len(w.sorted)/2], false
	}
	return w.median, len(w.latest)
}

// Samples say how long requests of a tier took that it served well, as medians over the latest 64; 0 with none.
type Samples struct {
	Service      time.Duration // from the slot to the end of the answer
	ServiceCount int
	First        time.Duration // from the slot to the first content of a stream
	FirstCount   int
}

// Samples reads the samples.
func (l *Limiter) Samples() Samples {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s Samples
	s.Service, s.ServiceCount = l.service.read()
	s.First, s.FirstCount = l.first.read()
	return s
}

// Learn takes the times of a request that was served well: from its slot to the end, and to the first content; zero:
// not known.
func (l *Limiter) Learn(service, first time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if service > 0 {
		l.service.add(service)
	}
	if first > 0 {
		l.first.add(first)
	}
}

// Forecast is how long w would wait for a slot: none while one is free, else the work ahead of it at the median service
// time, shared by all slots. Without samples it is 0: nothing is known.
func (l *Limiter) Forecast(w Want) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used < l.cfg.Concurrency {
		return 0
	}
	median, n := l.service.read()
	if n == 0 {
		return 0
	}
	ahead := 1
	me := waiter{want: w, seq: l.seq + 1}
	for _, other := range l.turn.items {
		if beforeTurn(other, &me) {
			ahead++
		}
	}
	return median * time.Duration(ahead) / time.Duration(l.cfg.Concurrency)
}
