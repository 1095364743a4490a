package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// peakWindow is the span in which retries that were sent count as one crowd.
const peakWindow = 50 * time.Millisecond

// Report is what one burst came to. A user is counted once, by the last of its attempts; an attempt is one request.
type Report struct {
	Users    int            `json:"users"`
	Admitted int            `json:"admitted"`         // users with a whole 2xx answer that is not a shed
	Shed     int            `json:"shed"`             // users whose last attempt was shed
	Other    int            `json:"other"`            // users with anything else: 504, upstream errors, broken connections
	Reasons  map[string]int `json:"reasons"`          // of Shed
	Others   map[string]int `json:"others,omitempty"` // of Other

	// Time from the release of the burst to the end of the last answer, over admitted users; zero if there are none.
	P50 Millis `json:"p50_ms"`
	P95 Millis `json:"p95_ms"`
	Max Millis `json:"max_ms"`
	// LastP95 is the same over all users, those who gave up included.
	LastP95 Millis `json:"last_p95_ms"`

	InflightMax *int `json:"inflight_max,omitempty"` // model calls at once, by the stub; nil if not known
	QueuedMax   *int `json:"queued_max,omitempty"`   // waiting at once in one tier, by brownout; nil if not known
	Started     *int `json:"started,omitempty"`      // model calls, by the stub; nil if not known

	Sent      int            `json:"sent"`       // attempts
	Sheds     int            `json:"sheds"`      // attempts that were shed
	RetryPeak int            `json:"retry_peak"` // most retries sent within 50 ms
	Waves     []Wave         `json:"waves"`      // by attempt number
	Answers   map[string]int `json:"answers"`    // attempts with a whole answer, by status and x-brownout-source
	Redials   int            `json:"redials"`    // connections opened during the burst
}

// Wave is the attempts with one number.
type Wave struct {
	Sent     int  `json:"sent"`
	Admitted int  `json:"admitted"`
	Shed     int  `json:"shed"`
	Other    int  `json:"other"`
	Upstream *int `json:"upstream,omitempty"` // model calls started for it, by the stub; nil if not known
}

// Millis is a duration that prints as whole milliseconds, rounded up, and marshals as a number of them.
type Millis time.Duration

// MarshalJSON renders milliseconds with their fraction.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/float64(time.Millisecond), 'f', 3, 64), nil
}

// String rounds up: what is over a bound never reads as equal to it.
func (m Millis) String() string {
	return strconv.FormatInt(int64(math.Ceil(float64(m)/float64(time.Millisecond))), 10) + "ms"
}

func summarize(users [][]attempt, released time.Time) Report {
	r := Report{Users: len(users), Reasons: map[string]int{}, Others: map[string]int{}, Answers: map[string]int{}}
	var served, all, retries []time.Duration
	for _, attempts := range users {
		for i, a := range attempts {
			r.count(i, a)
			if i > 0 {
				retries = append(retries, a.sent.Sub(released))
			}
		}
		last := attempts[len(attempts)-1]
		took := last.ended.Sub(released)
		all = append(all, took)
		switch last.verdict {
		case admitted:
			r.Admitted++
			served = append(served, took)
		case shed:
			r.Shed++
			r.Reasons[last.key]++
		default:
			r.Other++
			r.Others[last.key]++
		}
	}
	slices.Sort(served)
	slices.Sort(all)
	r.P50, r.P95, r.Max = quantile(served, 0.5), quantile(served, 0.95), quantile(served, 1)
	r.LastP95 = quantile(all, 0.95)
	r.RetryPeak = peak(retries)
	return r
}

// count adds attempt number i, counted from 0.
func (r *Report) count(i int, a attempt) {
	for len(r.Waves) <= i {
		r.Waves = append(r.Waves, Wave{})
	}
	w := &r.Waves[i]
	w.Sent++
	r.Sent++
	if a.answer != "" {
		r.Answers[a.answer]++
	}
	switch a.verdict {
	case admitted:
		w.Admitted++
	case shed:
		w.Shed++
		r.Sheds++
	default:
		w.Other++
	}
}

// quantile is the nearest rank of sorted values; zero if there are none.
func quantile(sorted []time.Duration, q float64) Millis {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return Millis(sorted[max(rank, 1)-1])
}

// peak is the largest number of instants within one peakWindow.
func peak(at []time.Duration) int {
	slices.Sort(at)
	most, first := 0, 0
	for i, t := range at {
		for t-at[first] >= peakWindow {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// WriteText prints the report in the article's two lines, then a line for users that were neither admitted nor shed and
// one for retries, each only if there are any.
func (r Report) WriteText(w io.Writer) error {
	reasons, err := json.Marshal(r.Reasons)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "admitted=%d shed=%d reasons=%s\n", r.Admitted, r.Shed, reasons)
	if r.Admitted > 0 {
		fmt.Fprintf(&b, "p50=%s p95=%s max=%s", r.P50, r.P95, r.Max)
	} else {
		b.WriteString("p50=- p95=- max=-")
	}
	fmt.Fprintf(&b, "%s%s\n", known(" inflight_max=", r.InflightMax), known(" queued_max=", r.QueuedMax))
	if r.Other > 0 {
		others, err := json.Marshal(r.Others)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "other=%d %s\n", r.Other, others)
	}
	if len(r.Waves) > 1 {
		fmt.Fprintf(&b, "sent=%d sheds=%d offered_per_wave=%s upstream_per_wave=%s\n", r.Sent, r.Sheds, r.offered(), r.upstream())
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func known(name string, n *int) string {
	if n == nil {
		return ""
	}
	return name + strconv.Itoa(*n)
}

func (r Report) offered() string {
	var parts []string
	for _, w := range r.Waves {
		parts = append(parts, strconv.Itoa(w.Sent))
	}
	return strings.Join(parts, "/")
}

func (r Report) upstream() string {
	var parts []string
	for _, w := range r.Waves {
		parts = append(parts, number(w.Upstream))
	}
	return strings.Join(parts, "/")
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}
