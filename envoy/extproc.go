package envoy

import (
	"strconv"
	"strings"
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

// Initial metadata of every ext_proc stream: what this configuration promises the plugin.
const (
	// MetadataMaxWait is max_message_timeout in milliseconds: the longest message-timeout override Envoy accepts.
	MetadataMaxWait = "brownout-max-wait-ms"
	// MetadataRouteTimeout is the route timeout in milliseconds; 0 means none.
	MetadataRouteTimeout = "brownout-route-timeout-ms"
	// MetadataBodyLimit is the largest request body Envoy buffers for the plugin, in bytes; 0 means that no body is
	// buffered, and bodies of any size pass.
	MetadataBodyLimit = "brownout-body-limit"
	// MetadataConfigHash is ConfigHash of the policy this configuration was rendered from.
	MetadataConfigHash = "brownout-config-hash"
	// MetadataRoutes lists the ROUTE/TIER pairs this configuration can send a request to, comma separated. After a reload
	// the plugin may know others, which it then leaves alone. Absent when the list would be longer than 4 KiB.
	MetadataRoutes = "brownout-routes"
	// MetadataSeal is what the plugin sets as SealHeader to have a request sealed. Absent: there is no sealed route.
	MetadataSeal = "brownout-seal"
)

// maxRoutesValue bounds MetadataRoutes: it is sent with every request.
const maxRoutesValue = 4 << 10

const (
	extProcFilter = "envoy.filters.http.ext_proc"

	// messageTimeout notices a dead plugin. Below 2 s a burst of 3,000 requests on a busy machine runs into it.
	messageTimeout = 2 * time.Second
	// waitMargin is how far the longest message timeout lies above the largest budget: the plugin asks for what is
	// left until its kill instant and 250 ms, so that Envoy's own timeout never speaks for it.
	waitMargin = time.Second
	// waitCap is the most Envoy takes as max_message_timeout.
	waitCap = time.Hour
)

// extProc is the external processor filter. It sees headers only, unless the plugin asks for a body; response trailers keep the side stream open until
// the answer has ended, which is the signal a slot is released on.
func extProc(s *policy.Snapshot, p *parsed, hash string) *extprocv3.ExternalProcessor {
	return &extprocv3.ExternalProcessor{
		GrpcService: &corev3.GrpcService{
			TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: pluginCluster}},
			InitialMetadata: initialMetadata(s, p, hash),
		},
		FailureModeAllow: true, // routes with `failure: closed` override it; what no route matches is never held up
		StatusOnError:    &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		ProcessingMode: &extprocv3.ProcessingMode{
			RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
			ResponseHeaderMode:  extprocv3.ProcessingMode_SEND,
			RequestBodyMode:     extprocv3.ProcessingMode_NONE,
			ResponseBodyMode:    extprocv3.ProcessingMode_NONE,
			RequestTrailerMode:  extprocv3.ProcessingMode_SKIP,
			ResponseTrailerMode: extprocv3.ProcessingMode_SEND,
		},
		ResponseAttributes: []string{"response.code_details", "upstream.request_attempt_count"},
		MessageTimeout:     durationpb.New(messageTimeout),
		MaxMessageTimeout:  durationpb.New(maxWait(s)),
		AllowModeOverride:  true,
		MutationRules:      &mutationv3.HeaderMutationRules{AllowEnvoy: wrapperspb.Bool(true)},
		ForwardRules:       forwardRules(s),
	}
}

// maxWait is the longest a request may be held: the largest budget any route grants, plus a margin, as far as Envoy
// goes along.
func maxWait(s *policy.Snapshot) time.Duration {
	longest := max(s.Budget.Max, s.Budget.Default)
	for _, r := range s.Routes {
		longest = max(longest, r.Budget.Max, r.Budget.Default)
	}
	return min(max(longest, messageTimeout)+waitMargin, waitCap)
}

func initialMetadata(s *policy.Snapshot, p *parsed, hash string) []*corev3.HeaderValue {
	list := []*corev3.HeaderValue{
		{Key: MetadataMaxWait, Value: strconv.FormatInt(maxWait(s).Milliseconds(), 10)},
		{Key: MetadataRouteTimeout, Value: "0"},
		{Key: MetadataBodyLimit, Value: strconv.FormatInt(announcedLimit(s, p), 10)},
	}
	if len(sealedTiers(s, p)) > 0 {
		list = append(list, &corev3.HeaderValue{Key: MetadataSeal, Value: SealOn})
	}
	if known := knownRoutes(s); len(known) <= maxRoutesValue {
		list = append(list, &corev3.HeaderValue{Key: MetadataRoutes, Value: known})
	}
	if hash != "" {
		list = append(list, &corev3.HeaderValue{Key: MetadataConfigHash, Value: hash})
	}
	return list
}

// knownRoutes is the value of MetadataRoutes: the names of the routes that a tier chooses.
func knownRoutes(s *policy.Snapshot) string {
	var names []string
	for i := range s.Routes {
		for _, tier := range modelTiers(s, &s.Routes[i]) {
			names = append(names, s.Routes[i].Name+"/"+tier)
		}
	}
	return strings.Join(names, ",")
}

func headerList(names []string) *matcherv3.ListStringMatcher {
	list := &matcherv3.ListStringMatcher{}
	for _, n := range names {
		list.Patterns = append(list.Patterns, exact(n))
	}
	return list
}
