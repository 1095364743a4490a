package deadline

import "time"

// Reserve limits: what is kept back of a budget to answer in.
const (
	maxReserve     = 50 * time.Millisecond
	reserveDivisor = 20 // 5 %
)

// envoyMargin is how long before a timeout of Envoy's we end, so that our ending arrives and not its reset.
const envoyMargin = 250 * time.Millisecond

// Limits are the policy's bounds on budgets. All are positive; Default ≤ Max.
type Limits struct {
	Default     time.Duration // when the caller states nothing
	Max         time.Duration // cap on what the caller states
	CoversWhole bool          // the default budget covers whole answers, streams too
}

// Bounds collects what is known about a caller's time. The zero value knows nothing.
type Bounds struct {
	whole, first, envoy    time.Duration
	hasWhole, hasFirst, en bool
}

// AddWhole adds a stated bound on the whole answer.
func (b *Bounds) AddWhole(d time.Duration) {
	if !b.hasWhole || d < b.whole {
		b.whole, b.hasWhole = d, true
	}
}

// AddFirst adds a stated bound on the first content of a stream, and on the whole of any other answer.
func (b *Bounds) AddFirst(d time.Duration) {
	if !b.hasFirst || d < b.first {
		b.first, b.hasFirst = d, true
	}
}

// AddEnvoy adds the timeout of an Envoy in front of us. It bounds the whole exchange but states no budget, so the
// default stays. Zero or less is Envoy's "no timeout". The margin we end before it is 250 ms, or half of a timeout
// that is shorter than 500 ms.
func (b *Bounds) AddEnvoy(d time.Duration) {
	if d <= 0 {
		return
	}
	d -= min(envoyMargin, d/2)
	if !b.en || d < b.envoy {
		b.envoy, b.en = d, true
	}
}

// Deadline is the time of one request, computed once at arrival.
type Deadline struct {
	Arrival time.Time
	Budget  time.Duration // of the nearest bound; may be ≤ 0
	Reserve time.Duration
	// First bounds the first content of a stream and the whole of any other answer. Always set.
	First time.Time
	// Whole bounds the whole answer, streams too. Zero: a stream may go on.
	Whole time.Time
}

// Resolve applies the policy's limits to the bounds of a request that arrived at now.
func (b Bounds) Resolve(now time.Time, l Limits) Deadline {
	first, whole, hasWhole := l.Default, l.Default, l.CoversWhole
	if b.hasWhole || b.hasFirst {
		first, hasWhole = l.Max, b.hasWhole
		if b.hasFirst {
			first = min(first, b.first)
		}
		whole = min(b.whole, l.Max)
	}
	if b.en {
		if !hasWhole || b.envoy < whole {
			whole = b.envoy
		}
		hasWhole = true
	}
	if hasWhole {
		first = min(first, whole)
	}
	d := Deadline{Arrival: now, Budget: first, First: now.Add(first)}
	d.Reserve = max(0, min(maxReserve, first/reserveDivisor))
	if hasWhole {
		d.Whole = now.Add(whole)
	}
	return d
}

// Expired says whether the time was gone on arrival.
func (d Deadline) Expired() bool { return d.TooLate(d.Arrival) }

// KillAt is when a request without response headers ends: the nearest deadline less the reserve.
func (d Deadline) KillAt() time.Time { return d.First.Add(-d.Reserve) }

// EndAt is when the answer ends once its headers are there: of a stream the whole bound, of any other answer the
// nearest, each less the reserve. Zero: never.
func (d Deadline) EndAt(stream bool) time.Time {
	if !stream {
		return d.KillAt()
	}
	if d.Whole.IsZero() {
		return time.Time{}
	}
	return d.Whole.Add(-d.Reserve)
}

// CoversWhole says whether KillAt bounds the whole answer, streams too, and not only a stream's first content.
func (d Deadline) CoversWhole() bool { return !d.Whole.IsZero() && !d.Whole.After(d.First) }

// TooLate says whether less than a millisecond is left until KillAt: nothing can be forwarded that would be true.
func (d Deadline) TooLate(now time.Time) bool { return d.KillAt().Sub(now) < time.Millisecond }

// RemainingMillis is what is left until KillAt in whole milliseconds, at least 1: what is sent upstream.
func (d Deadline) RemainingMillis(now time.Time) int64 {
	return max(1, d.KillAt().Sub(now).Milliseconds())
}
