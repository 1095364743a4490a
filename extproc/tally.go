package extproc

import "sync"

// tally keeps the books: every request that arrived has ended, or is in flight.
type tally struct {
	mu       sync.Mutex // guards the fields below
	arrived  uint64
	finished uint64
	live     int64
}

// Tally is the state of the books. Arrived = Finished + InFlight + Unaccounted.
type Tally struct {
	Arrived  uint64 `json:"arrived"`
	Finished uint64 `json:"finished"`
	InFlight int64  `json:"in_flight"`
	// Unaccounted counts requests whose stream ended without an outcome: always 0, or there is a bug.
	Unaccounted int64 `json:"unaccounted"`
}

func (t *tally) begin() {
	t.mu.Lock()
	t.arrived++
	t.live++
	t.mu.Unlock()
}

func (t *tally) finish() {
	t.mu.Lock()
	t.finished++
	t.live--
	t.mu.Unlock()
}

// lose notes that a request's stream ended without an outcome.
func (t *tally) lose() {
	t.mu.Lock()
	t.live--
	t.mu.Unlock()
}

func (t *tally) read() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Tally{
		Arrived: t.arrived, Finished: t.finished, InFlight: t.live,
		Unaccounted: int64(t.arrived) - int64(t.finished) - t.live,
	}
}
