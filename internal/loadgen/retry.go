package loadgen

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// Backoff names how long a client waits before it tries again.
type Backoff string

// The backoffs.
const (
	BackoffNone       Backoff = "none"        // it does not try again
	BackoffFixed      Backoff = "fixed"       // always the same delay: clients that failed together return together
	BackoffFullJitter Backoff = "full-jitter" // uniform in [0, delay·2ⁿ), n the retries before: AWS Architecture Blog, "Exponential Backoff And Jitter"
)

// MaxRetries is the hard ceiling of any plan: a load run cannot become the outage it measures.
const MaxRetries = stub.MaxWave - 1

const (
	maxBase  = time.Minute      // of Plan.Delay
	maxDelay = 10 * time.Second // caps one exponential step
)

// Plan is how every client retries. The zero value is no retries. A client retries sheds, 429, 5xx and broken
// connections, unless the answer says x-should-retry: false. It ignores Retry-After: what is compared is the plan.
type Plan struct {
	Retries int           // after the first attempt; at most MaxRetries
	Backoff Backoff       // empty means BackoffNone
	Delay   time.Duration // of BackoffFixed; the base of BackoffFullJitter
}

// Validate reports what contradicts itself.
func (p Plan) Validate() error {
	switch {
	case p.Retries < 0 || p.Retries > MaxRetries:
		return fmt.Errorf("%d retries is out of range: use 0 to %d", p.Retries, MaxRetries)
	case p.Delay < 0 || p.Delay > maxBase:
		return fmt.Errorf("retry delay %s is out of range: use 0 to %s", p.Delay, maxBase)
	case p.none() && p.Retries > 0:
		return fmt.Errorf("%d retries with backoff none: use backoff %s or %s", p.Retries, BackoffFixed, BackoffFullJitter)
	case p.none():
		return nil
	case p.Backoff != BackoffFixed && p.Backoff != BackoffFullJitter:
		return fmt.Errorf("backoff %q is unknown: use one of %s", p.Backoff,
			strings.Join([]string{string(BackoffNone), string(BackoffFixed), string(BackoffFullJitter)}, ", "))
	case p.Retries == 0:
		return fmt.Errorf("backoff %s without retries: say how many", p.Backoff)
	}
	return nil
}

func (p Plan) none() bool { return p.Backoff == "" || p.Backoff == BackoffNone }

// delay is the wait before retry n, counted from 0.
func (p Plan) delay(n int, rng *rand.Rand) time.Duration {
	if p.Backoff != BackoffFullJitter {
		return p.Delay
	}
	window := min(p.Delay<<min(n, MaxRetries), maxDelay)
	if window <= 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(window)))
}

// String names the plan in tables.
func (p Plan) String() string {
	if p.none() {
		return "none"
	}
	return fmt.Sprintf("%s x%d", p.Backoff, p.Retries)
}
