package stub

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Bounds of a latency: beyond them a figure is a typing error.
const (
	maxLatency = time.Hour
	maxCV      = 100.0
	lognormal  = "lognormal:"
)

// Latency is a distribution of service times: one fixed value, or lognormal. The zero value is no time at all.
type Latency struct {
	mean time.Duration
	cv   float64 // coefficient of variation: standard deviation ÷ mean; 0 means fixed
}

// ParseLatency reads "30ms", "30" (milliseconds) or "lognormal:MEAN,CV" such as "lognormal:100ms,0.7".
func ParseLatency(text string) (Latency, error) {
	mean, cv, random := text, "0", strings.HasPrefix(text, lognormal)
	if random {
		var ok bool
		if mean, cv, ok = strings.Cut(strings.TrimPrefix(text, lognormal), ","); !ok {
			return Latency{}, fmt.Errorf("latency %q has no coefficient of variation: write lognormal:100ms,0.7", text)
		}
	}
	d, err := parseDuration(mean)
	if err != nil || d < 0 || d > maxLatency {
		return Latency{}, fmt.Errorf("latency %q is not a duration from 0 to %s: write 30ms or lognormal:100ms,0.7", text, maxLatency)
	}
	c, err := strconv.ParseFloat(cv, 64)
	if err != nil || !(c >= 0 && c <= maxCV) {
		return Latency{}, fmt.Errorf("latency %q: coefficient of variation %q is not a number from 0 to %g", text, cv, maxCV)
	}
	return Latency{mean: d, cv: c + 0}, nil // + 0 turns -0 into 0
}

// parseDuration takes a bare number for milliseconds, as the load test of the article does.
func parseDuration(s string) (time.Duration, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return time.Duration(n) * time.Millisecond, nil
	}
	return time.ParseDuration(s)
}

// String returns the form ParseLatency reads.
func (l Latency) String() string {
	if l.Fixed() {
		return l.mean.String()
	}
	return lognormal + l.mean.String() + "," + strconv.FormatFloat(l.cv, 'g', -1, 64)
}

// Fixed reports whether every draw is the mean.
func (l Latency) Fixed() bool { return l.cv == 0 }

// Mean is the mean of the distribution.
func (l Latency) Mean() time.Duration { return l.mean }

// Draw returns the service time of the request with that id. It depends on nothing else, so that one request costs the
// same whoever is asked to admit it. Draws end at one hour.
func (l Latency) Draw(seed uint64, id string) time.Duration {
	if l.Fixed() || l.mean == 0 {
		return l.mean
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	variance := math.Log1p(l.cv * l.cv) // of the logarithm
	z := rand.New(rand.NewPCG(seed, h.Sum64())).NormFloat64()
	factor := math.Exp(math.Sqrt(variance)*z - variance/2)
	return time.Duration(min(float64(l.mean)*factor, float64(maxLatency)))
}
