package degrade

import "time"

// Rule is what the policy says of a rung.
type Rule struct {
	WaitOver time.Duration // the wait in the better tier above which the rung is entered; 0: any wait
	Dwell    time.Duration // how long it is kept to
}

// Dwell is the state of one rung of a route: whether requests go there while the better tier is busy. The zero value waits
// for the better tier.
type Dwell struct {
	low     bool
	until   time.Time // not left before
	entries int
}

// Pass says whether a request that found no free slot in the better tier goes past it, given the wait it would have there.
func (d *Dwell) Pass(now time.Time, forecast time.Duration, r Rule) bool {
	switch {
	case d.low && now.Before(d.until):
		return true
	case d.low && forecast < max(r.WaitOver/2, 1):
		d.low = false
		return false
	case d.low:
		return true
	case forecast > r.WaitOver:
		d.Enter(now, r)
		return true
	}
	return false
}

// Enter notes that a request went to the rung because the better tier was busy: its queue was full, or the wait there
// reached wait_over.
func (d *Dwell) Enter(now time.Time, r Rule) {
	if d.low && now.Before(d.until) {
		return
	}
	if !d.low {
		d.entries++
	}
	d.low, d.until = true, now.Add(r.Dwell)
}

// Entries is how often the rung was entered.
func (d *Dwell) Entries() int { return d.entries }

// Low says whether requests go to the rung while the better tier is busy.
func (d *Dwell) Low() bool { return d.low }
