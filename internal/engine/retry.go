package engine

import (
	"sync"
	"time"
)

// The retry budget: of the requests that ended in the window, at most the route's share may have been repeated by Envoy,
// and a few always may (after Envoy's circuit breaker retry_budget: budget_percent, min_retry_concurrency).
const (
	retryWindow = 10 * time.Second
	retryFloor  = 3
)

// retryBudget counts requests and retries over two halves of the window.
type retryBudget struct {
	mu    sync.Mutex // guards the fields below
	since time.Time  // when the present half began
	done  [2]int     // requests that ended, in the present half and the one before
	tried [2]int     // retries, alike
}

func (b *retryBudget) rollLocked(now time.Time) {
	switch half := retryWindow / 2; {
	case now.Sub(b.since) >= 2*half:
		b.since, b.done, b.tried = now, [2]int{}, [2]int{}
	case now.Sub(b.since) >= half:
		b.since, b.done, b.tried = b.since.Add(half), [2]int{0, b.done[0]}, [2]int{0, b.tried[0]}
	}
}

// ended notes a request with so many attempts.
func (b *retryBudget) ended(now time.Time, attempts int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rollLocked(now)
	b.done[0]++
	b.tried[0] += max(0, attempts-1)
}

// allows says whether one more may be repeated, where percent of the requests may.
func (b *retryBudget) allows(now time.Time, percent int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rollLocked(now)
	return b.tried[0]+b.tried[1] < (b.done[0]+b.done[1])*percent/100+retryFloor
}

// mayRetry says whether Envoy may repeat the request should it break before an answer's headers: the policy wants it, the
// caller is not at it already, the time left is enough for a first content as the tier's samples tell, and the budget
// is not spent.
func (a *Admission) mayRetry(now time.Time, rung int) bool { return a.noRetry(now, rung) == "" }

// Why Envoy may not repeat a request.
const (
	noRetryPolicy = "policy" // the route has no retries
	noRetryCaller = "caller" // the caller repeats the request by itself
	noRetryTime   = "time"   // too little is left of the deadline
	noRetryBudget = "budget" // too many of late
)

// noRetry is why Envoy may not repeat the request; "": it may.
func (a *Admission) noRetry(now time.Time, rung int) string {
	switch {
	case a.route.Retries == 0:
		return noRetryPolicy
	case a.sdkTry:
		return noRetryCaller
	}
	s := a.limiter(rung).Samples()
	need := s.Service
	if a.facts.Stream && s.FirstCount > 0 {
		need = s.First
	}
	switch {
	case a.due.KillAt().Sub(now) < need:
		return noRetryTime
	case a.route.RetryBudget < 100 && !a.e.retries.allows(now, a.route.RetryBudget):
		return noRetryBudget
	}
	return ""
}
