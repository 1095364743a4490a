package envoy

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

// The sealed way of a request: front listener → cluster brownout_seal → the seal, in brownout → inner listener → the
// tier's cluster. Both hops are HTTP/2 in clear: HTTP/1.1 has no trailer that survives, and delays a cut.

const (
	sealCluster  = "brownout_seal"
	innerPrefix  = "inner" // the listener, its route configuration and its statistics: http.inner.*
	sealedSuffix = "/sealed"

	// sealStreams is how many requests share a connection, towards the seal and from it.
	sealStreams = 100
	// sealStreamWindow bounds what a body that nobody reads leaves on each hop.
	sealStreamWindow = 64 << 10
	// sealConnWindow is more than sealStreams bodies can fill, so that those nobody reads hold no other up.
	sealConnWindow = 8 << 20
	// sealBuffer is what a connection of these hops buffers. Envoy's default of 1 MiB would be upstream work that a client
	// which stopped reading leaves running, once more per hop.
	sealBuffer = 256 << 10
	// sealIdle closes connections a burst has left: to make one on this machine costs less than to keep it.
	sealIdle = 5 * time.Second
	// innerHeadersKB and innerHeaderCount let everything in that the front listener let in, and what the plugin added.
	innerHeadersKB    = 96
	innerHeaderCount  = 200
	innerDelayedClose = 50 * time.Millisecond // a connection that ends is closed at once
)

// sealed reports whether answers of a route are to take the hop through the seal.
func sealed(r *policy.Route) bool { return r.Stream.Watch && r.Stream.Seal }

// sealedTiers names the tiers that some sealed route can send a request to, in the policy's order. Empty: there is no
// sealed way.
func sealedTiers(s *policy.Snapshot, p *parsed) []string {
	if p.seal == nil {
		return nil
	}
	used := make(map[string]bool)
	for i := range s.Routes {
		if r := &s.Routes[i]; sealed(r) {
			for _, tier := range modelTiers(s, r) {
				used[tier] = true
			}
		}
	}
	var names []string
	for _, t := range s.Tiers {
		if used[t.Name] {
			names = append(names, t.Name)
		}
	}
	return names
}

// sealedMatch narrows m, which holds the tier, to requests the plugin wants sealed.
func sealedMatch(m *routev3.RouteMatch) *routev3.RouteMatch {
	m.Headers = append(m.Headers, header(SealHeader, exact(SealOn)))
	return m
}

// hopHTTP2 are the settings of both hops, on the side of Envoy's that sends requests and on the one that takes them. One
// message that breaks HTTP's rules ends its own stream only. Go acknowledges a large body in small portions.
func hopHTTP2() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{
		MaxConcurrentStreams:                         wrapperspb.UInt32(sealStreams),
		InitialStreamWindowSize:                      wrapperspb.UInt32(sealStreamWindow),
		InitialConnectionWindowSize:                  wrapperspb.UInt32(sealConnWindow),
		MaxInboundWindowUpdateFramesPerDataFrameSent: wrapperspb.UInt32(maxWindowUpdates),
		OverrideStreamErrorOnInvalidHttpMessage:      wrapperspb.Bool(true),
	}
}

// sealHop reaches the seal.
func sealHop(pack *packer, p *parsed) *clusterv3.Cluster {
	c := cluster(sealCluster, []address{*p.seal})
	c.CircuitBreakers = openBreakers() // the tiers' own breakers are behind it
	c.PerConnectionBufferLimitBytes = wrapperspb.UInt32(sealBuffer)
	o := hopHTTP2()
	o.ConnectionKeepalive = keepalive()
	setHTTPOptions(pack, c, &upstreamhttpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(sealIdle)},
		UpstreamProtocolOptions:   explicitHTTP2(o),
	})
	return c
}

// innerListener takes requests from the seal and sends them to the cluster of their tier.
func innerListener(pack *packer, s *policy.Snapshot, p *parsed) *listenerv3.Listener {
	addr := p.inner.proto()
	if pipe := addr.GetPipe(); pipe != nil {
		pipe.Mode = p.socketMode
	}
	return &listenerv3.Listener{
		Name:                          innerPrefix,
		Address:                       addr,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(sealBuffer),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack.any(innerManager(pack, s, p))},
		}}}},
	}
}

// innerManager changes nothing in what passes: the front listener has normalized, stripped and added what there is to. It
// has no timers and no access log, for the front listener has them.
func innerManager(pack *packer, s *policy.Snapshot, p *parsed) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:           innerPrefix,
		CodecType:            hcmv3.HttpConnectionManager_HTTP2,
		Http2ProtocolOptions: hopHTTP2(),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:     durationpb.New(0), // the seal closes what it does not need
			MaxHeadersCount: wrapperspb.UInt32(innerHeaderCount),
		},
		MaxRequestHeadersKb:        wrapperspb.UInt32(innerHeadersKB),
		StreamIdleTimeout:          durationpb.New(0),
		DelayedCloseTimeout:        durationpb.New(innerDelayedClose),
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,
		GenerateRequestId:          wrapperspb.Bool(false),
		PreserveExternalRequestId:  true,
		SkipXffAppend:              true,
		LocalReplyConfig:           markedReplies(),
		HttpFilters: []*hcmv3.HttpFilter{httpFilter("envoy.filters.http.router", pack, &routerv3.Router{
			SuppressEnvoyHeaders: true,
		})},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: innerRoutes(s, p)},
	}
}

// innerRoutes has one route per tier and none for what has no tier: that is answered 404, with the mark.
func innerRoutes(s *policy.Snapshot, p *parsed) *routev3.RouteConfiguration {
	var list []*routev3.Route
	for _, tier := range sealedTiers(s, p) {
		m := match(policy.Match{})
		m.Headers = append(m.Headers, header(tierHeader, exact(tier)))
		list = append(list, &routev3.Route{Name: tier, Match: m, Action: &routev3.Route_Route{Route: target(tier, p)}})
	}
	return &routev3.RouteConfiguration{
		Name:                    innerPrefix,
		VirtualHosts:            []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: list}},
		RequestHeadersToRemove:  []string{SealHeader, SealIDHeader},
		ResponseHeadersToRemove: []string{SealHeader, InnerHeader, CutTrailer}, // an upstream's; our marks are put on later
	}
}

// markedReplies tells Envoy's own replies from the upstream's.
func markedReplies() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
			StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
				Op:    accesslogv3.ComparisonFilter_GE,
				Value: &corev3.RuntimeUInt32{DefaultValue: 100, RuntimeKey: "brownout.no_such_key"}, // every reply
			}},
		}},
		HeadersToAdd: []*corev3.HeaderValueOption{{
			Header:       &corev3.HeaderValue{Key: InnerHeader, Value: "%RESPONSE_CODE_DETAILS%"},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
	}}}
}
