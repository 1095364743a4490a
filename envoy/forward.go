package envoy

import (
	"slices"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"github.com/envoy-brownout/brownout/policy"
)

// readHeaders are the headers the plugin reads or cleans under every policy, of requests and of responses, trailers
// included.
var readHeaders = []string{
	":authority", ":method", ":path", ":scheme", ":status",
	"cache-control", "content-length", "content-type", "grpc-timeout", "prefer",
	"retry-after", "retry-after-ms", "x-should-retry",
	"content-encoding", SealHeader, InnerHeader, CutTrailer,
	"x-amzn-errortype", "x-llm-d-request-dropped-reason", // why a backend refused
	"x-deadline-covers", "x-deadline-remaining-ms", "x-degrade", "x-max-queue-ms",
	"x-degraded", "x-tier",
	"x-envoy-expected-rq-timeout-ms", "x-envoy-internal", "x-request-id",
}

// withheldHeaders are what the plugin has no use for even where answers are kept: neither a key is made of them nor are
// they given again.
var withheldHeaders = []string{
	"alt-svc", "baggage", "nel", "referer", "report-to", "server-timing", "set-cookie", "traceparent", "tracestate", "user-agent",
	"x-envoy-upstream-service-time",
}

// forwardRules limit what Envoy sends the plugin.
func forwardRules(s *policy.Snapshot) *extprocv3.HeaderForwardingRules {
	if names := ForwardedHeaders(s); names != nil {
		return &extprocv3.HeaderForwardingRules{AllowedHeaders: headerList(names)}
	}
	return &extprocv3.HeaderForwardingRules{DisallowedHeaders: headerList(WithheldHeaders(s))}
}

// ForwardedHeaders lists the headers Envoy passes on to the plugin, sorted; it keeps all others to itself, which
// saves bytes and keeps credentials out of the plugin. It is nil where a route keeps answers: their keys are made of
// callers' credentials, and a kept answer has whatever headers the upstream gave it, so Envoy passes on all but
// WithheldHeaders.
func ForwardedHeaders(s *policy.Snapshot) []string {
	if s.KeepsAnswers() {
		return nil
	}
	names := slices.Clone(readHeaders)
	for _, name := range []string{s.Budget.Header, s.Priority.Header} {
		names = append(names, strings.ToLower(name))
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		names = append(names, strings.ToLower(r.Budget.Header))
		if r.Retries > 0 {
			names = append(names, "x-stainless-retry-count") // how often the caller's own SDK has tried already
		}
		if s.NeedsBody(r) {
			names = append(names, "accept") // the form of an answer of ours, where the body does not say
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

// WithheldHeaders lists what Envoy keeps to itself where a route keeps answers, sorted: a header that some cache is
// partitioned by is not among them.
func WithheldHeaders(s *policy.Snapshot) []string {
	return slices.DeleteFunc(slices.Clone(withheldHeaders), func(name string) bool {
		return slices.ContainsFunc(s.Routes, func(r policy.Route) bool {
			return r.Cache != nil && slices.Contains(r.Cache.Partition, name)
		})
	})
}
