package envoy

import (
	"net/netip"
	"slices"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

const (
	statPrefix = "front" // Envoy's statistics are http.front.*, those of the filter http.front.ext_proc.*

	// minStreamIdle bounds silence on a stream, a held request's included. It lies above any wait the policy allows
	// and above the gap between two tokens of a slow model.
	minStreamIdle = 5 * time.Minute
	// streamFlush bounds the upstream work that a client which stopped reading keeps alive.
	streamFlush = 5 * time.Second
	// Windows of HTTP/2 towards clients: of one upload, and of all on a connection.
	clientStreamWindow = 256 << 10
	clientConnWindow   = 16 << 20
	// requestHeaders bounds how long a client may take to send its headers.
	requestHeaders = 30 * time.Second
)

func listener(pack *packer, s *policy.Snapshot, p *parsed, hash string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:    statPrefix,
		Address: p.listen.proto(),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack.any(connectionManager(pack, s, p, hash))},
		}}}},
	}
}

func connectionManager(pack *packer, s *policy.Snapshot, p *parsed, hash string) *hcmv3.HttpConnectionManager {
	router := httpFilter("envoy.filters.http.router", pack, &routerv3.Router{})
	h := &hcmv3.HttpConnectionManager{
		StatPrefix:         statPrefix,
		CodecType:          hcmv3.HttpConnectionManager_AUTO,
		StreamIdleTimeout:  durationpb.New(streamIdle(s)),
		StreamFlushTimeout: durationpb.New(streamFlush),
		// One spelling per path: otherwise /v1//chat, /x/../v1/chat or /v1%2Fchat reaches the upstream past the policy's
		// matcher.
		NormalizePath:                 wrapperspb.Bool(true),
		MergeSlashes:                  true,
		PathWithEscapedSlashesAction:  hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD,
		HttpProtocolOptions:           &corev3.Http1ProtocolOptions{AcceptHttp_10: true},
		RequestHeadersTimeout:         durationpb.New(requestHeaders),
		LocalReplyConfig:              hungPlugin(pack),
		Http2ProtocolOptions:          clientHTTP2(),
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{stripPlanted(pack)},
		UpgradeConfigs:                []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket", Filters: []*hcmv3.HttpFilter{router}}},
		HttpFilters:                   []*hcmv3.HttpFilter{httpFilter(extProcFilter, pack, extProc(s, p, hash)), router},
		RouteSpecifier:                &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routeConfig(pack, s, p)},
	}
	trustInternal(h, p.internal)
	if p.AccessLog != "" {
		h.AccessLog = []*accesslogv3.AccessLog{accessLog(pack, p.AccessLog)}
	}
	return h
}

// streamIdle is how long a stream may be silent on routes that say nothing longer.
func streamIdle(s *policy.Snapshot) time.Duration { return max(minStreamIdle, maxWait(s)+time.Minute) }

// clientHTTP2 are the HTTP/2 settings towards clients. The window of a stream is also how much of an answer Envoy keeps
// for a client that does not read it (16 MiB by default): as much work of a model would nobody stop. AllowConnect:
// websockets over HTTP/2, RFC 8441.
func clientHTTP2() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{
		AllowConnect:                true,
		InitialStreamWindowSize:     wrapperspb.UInt32(clientStreamWindow),
		InitialConnectionWindowSize: wrapperspb.UInt32(clientConnWindow),
	}
}

func routeConfig(pack *packer, s *policy.Snapshot, p *parsed) *routev3.RouteConfiguration {
	c := &routev3.RouteConfiguration{
		Name:         statPrefix,
		VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: routes(pack, s, p)}},
	}
	if slices.ContainsFunc(s.Tiers, func(t policy.Tier) bool { return t.Model != nil && renames(s, t.Name) }) {
		c.RequestHeadersToRemove = []string{RouteHeader}
	}
	return c
}

func httpFilter(name string, pack *packer, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack.any(config)}}
}

// routerHeaders are what a caller of a trusted network could make the router retry, hedge or give up with; one admission
// must stay one upstream call, and the deadline is the plugin's.
var routerHeaders = []string{"x-envoy-retry-on", "x-envoy-retry-grpc-on", "x-envoy-max-retries", "x-envoy-retriable-status-codes",
	"x-envoy-retriable-header-names", "x-envoy-hedge-on-per-try-timeout", "x-envoy-upstream-rq-timeout-ms",
	"x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-upstream-rq-timeout-alt-response", "x-envoy-upstream-stream-duration-ms"}

// stripPlanted removes the names that are ours from every request before routing, so that a caller can plant none
// of them, even with brownout away.
func stripPlanted(pack *packer) *corev3.TypedExtensionConfig {
	var list []*mutationv3.HeaderMutation
	for _, name := range append([]string{tierHeader, "x-degraded", "x-degraded-reason"}, routerHeaders...) {
		list = append(list, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}})
	}
	list = append(list, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: prefix("x-brownout-")},
	}})
	return &corev3.TypedExtensionConfig{
		Name:        "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: pack.any(&earlyv3.HeaderMutation{Mutations: list}),
	}
}

// hungPlugin turns the 504 with which Envoy gives up on a plugin that does not answer into a 503: the upstream was not
// reached. A plugin that is gone gets status_on_error, which is 503 already.
func hungPlugin(pack *packer) *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
			ExtensionFilter: &accesslogv3.ExtensionFilter{
				Name: "envoy.access_loggers.extension_filters.cel",
				ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: pack.any(&celfilterv3.ExpressionFilter{
					Expression: `response.code == 504 && response.code_details.startsWith("ext_proc_error")`,
				})},
			},
		}},
		StatusCode: wrapperspb.UInt32(503),
	}}}
}

// trustInternal makes Envoy mark requests from the given networks x-envoy-internal and keep what their Envoys say
// (x-envoy-expected-rq-timeout-ms). By default it trusts nobody and removes both from every request.
func trustInternal(h *hcmv3.HttpConnectionManager, networks []netip.Prefix) {
	if len(networks) == 0 {
		return
	}
	trusted := &hcmv3.HttpConnectionManager_InternalAddressConfig{}
	for _, n := range networks {
		trusted.CidrRanges = append(trusted.CidrRanges, &corev3.CidrRange{
			AddressPrefix: n.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(n.Bits())),
		})
	}
	h.UseRemoteAddress, h.InternalAddressConfig = wrapperspb.Bool(true), trusted
}

// accessLogFields are the columns of the access log. Counted by status and source they must agree with the plugin's
// own counters. The path is logged without its query, which can carry a key.
var accessLogFields = map[string]string{
	"time":             "%START_TIME%",
	"protocol":         "%PROTOCOL%",
	"method":           "%REQ(:METHOD)%",
	"path":             "%PATH(NQ:PATH)%",
	"status":           "%RESPONSE_CODE%",
	"flags":            "%RESPONSE_FLAGS%",
	"code_details":     "%RESPONSE_CODE_DETAILS%",
	"duration_ms":      "%DURATION%",
	"source":           "%RESP(X-BROWNOUT-SOURCE)%",
	"tier":             "%RESP(X-TIER)%",
	"degraded":         "%RESP(X-DEGRADED)%",
	"route":            "%ROUTE_NAME%",
	"upstream_cluster": "%UPSTREAM_CLUSTER%",
	"bytes_received":   "%BYTES_RECEIVED%",
	"bytes_sent":       "%BYTES_SENT%",
	"request_id":       "%REQ(X-REQUEST-ID)%",
}

func accessLog(pack *packer, path string) *accesslogv3.AccessLog {
	fields := make(map[string]*structpb.Value, len(accessLogFields))
	for name, format := range accessLogFields {
		fields[name] = structpb.NewStringValue(format)
	}
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack.any(&filelogv3.FileAccessLog{
			Path: path,
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}},
			}},
		})},
	}
}
