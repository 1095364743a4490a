package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

const (
	// Pauses before a retry: a random time of up to retryPause, doubled by each further one up to retryPauseMax.
	retryPause    = 25 * time.Millisecond
	retryPauseMax = 250 * time.Millisecond

	// retryAlways is how many retries at once a cluster may make in any case.
	retryAlways = 3
)

// retryPolicy is how the router repeats a request that the plugin lets it repeat (RetryOnHeader). By itself it repeats
// none: it has no conditions of its own, and so nothing is repeated while brownout is away. behindSeal: an answer of
// the seal's that stands for none of the upstream's is as good as a reset.
func retryPolicy(r *policy.Route, behindSeal bool) *routev3.RetryPolicy {
	if r.Retries == 0 {
		return nil
	}
	out := &routev3.RetryPolicy{
		NumRetries: wrapperspb.UInt32(uint32(r.Retries)),
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(retryPause),
			MaxInterval:  durationpb.New(retryPauseMax),
		},
	}
	if behindSeal {
		out.RetriableHeaders = []*routev3.HeaderMatcher{header(SealHeader, exact(SealUnreachable))}
	}
	return out
}

// setRetryBudget bounds the retries of a cluster by what it has in flight: while everything breaks they must not be a
// second load.
func setRetryBudget(c *clusterv3.Cluster, percent int) {
	c.CircuitBreakers.Thresholds[0].RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
		BudgetPercent:       &typev3.Percent{Value: float64(percent)},
		MinRetryConcurrency: wrapperspb.UInt32(retryAlways),
	}
}

// retriedTiers are the tiers that some route with retries can send a request to, with the largest budget of those routes.
func retriedTiers(s *policy.Snapshot) map[string]int {
	used := make(map[string]int)
	for i := range s.Routes {
		if r := &s.Routes[i]; r.Retries > 0 {
			for _, tier := range modelTiers(s, r) {
				used[tier] = max(used[tier], r.RetryBudget)
			}
		}
	}
	return used
}

// sealedRetries is the largest retry budget of a sealed route that has retries; false where none has.
func sealedRetries(s *policy.Snapshot) (percent int, any bool) {
	for i := range s.Routes {
		if r := &s.Routes[i]; r.Retries > 0 && sealed(r) {
			percent, any = max(percent, r.RetryBudget), true
		}
	}
	return percent, any
}
