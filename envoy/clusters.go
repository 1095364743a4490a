package envoy

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

const (
	unmatchedCluster = "unmatched"
	pluginCluster    = "brownout"

	connectTimeout    = time.Second
	keepaliveInterval = 10 * time.Second // a plugin that hangs without closing its socket is noticed within 15 s
	keepaliveTimeout  = 5 * time.Second

	// Windows of HTTP/2 towards model servers: of one answer, and of all on a connection.
	upstreamStreamWindow = 256 << 10
	upstreamConnWindow   = 1000 * upstreamStreamWindow
	// maxWindowUpdates lifts the bound on window updates per frame of data.
	maxWindowUpdates = 10_000

	// noLimit lifts a circuit breaker. Envoy's default of 1024 answers 500 for ext_proc streams under load.
	noLimit = 100_000
)

// tierCluster is the name of the cluster that serves a model tier.
func tierCluster(tier string) string { return "tier_" + tier }

// tierBreakers is the second line of defence for when brownout is away. With brownout present it must never act:
// at one instant every slot may pass to a new request while Envoy is still tearing down the exchange that held it
// (a deadline or an abort frees the slot at once, and worker threads do not wait for one another), hence twice the
// tier's concurrency; the constant covers small tiers. A request also counts as pending while its connection is
// being set up, so the pending bound holds those as well as what the tier lets wait.
func tierBreakers(m *policy.Model) *clusterv3.CircuitBreakers {
	requests := 2*m.Concurrency + 16
	return breakers(requests, requests, requests+m.Queue)
}

// openBreakers is for clusters whose traffic nobody rations here.
func openBreakers() *clusterv3.CircuitBreakers { return breakers(noLimit, noLimit, noLimit) }

func breakers(connections, requests, pending int) *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     wrapperspb.UInt32(clampUint32(connections)),
		MaxPendingRequests: wrapperspb.UInt32(clampUint32(pending)),
		MaxRequests:        wrapperspb.UInt32(clampUint32(requests)),
	}}}
}

func clampUint32(n int) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }

// upstreamCluster is a cluster with the endpoints of a tier, all of which have one scheme.
func upstreamCluster(pack *packer, p *parsed, name, tier string, cb *clusterv3.CircuitBreakers) *clusterv3.Cluster {
	endpoints := p.upstreams[tier]
	addrs := make([]address, len(endpoints))
	for i, u := range endpoints {
		addrs[i] = address{host: u.Host, port: u.Port}
	}
	c := cluster(name, addrs)
	c.CircuitBreakers = cb
	switch endpoints[0].Scheme {
	case SchemeHTTP: // HTTP/1.1 is what a cluster without options speaks
	case SchemeH2C:
		setHTTPOptions(pack, c, &upstreamhttpv3.HttpProtocolOptions{UpstreamProtocolOptions: explicitHTTP2(upstreamHTTP2())})
	case SchemeHTTPS:
		setHTTPOptions(pack, c, &upstreamhttpv3.HttpProtocolOptions{UpstreamProtocolOptions: &upstreamhttpv3.HttpProtocolOptions_AutoConfig{
			AutoConfig: &upstreamhttpv3.HttpProtocolOptions_AutoHttpConfig{
				HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
				Http2ProtocolOptions: upstreamHTTP2(),
			},
		}})
		c.TransportSocket = tlsSocket(pack, endpoints, p.UpstreamCA)
	}
	return c
}

// upstreamHTTP2 are the HTTP/2 settings towards model servers. AllowConnect: websockets of HTTP/1.1 clients travel as
// extended CONNECT. Envoy before 1.37 takes the window updates with which a Go server acknowledges a large upload for
// a flood and cuts the connection (Envoy: max_inbound_window_update_frames_per_data_frame_sent, default 10); upstreams
// are no attackers, so the bound is only there to end a loop. By default two answers whose clients do not read fill the
// window of a connection and stop every other answer on it: here a stream fills a thousandth of it.
func upstreamHTTP2() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{
		AllowConnect:                                 true,
		InitialStreamWindowSize:                      wrapperspb.UInt32(upstreamStreamWindow),
		InitialConnectionWindowSize:                  wrapperspb.UInt32(upstreamConnWindow),
		MaxInboundWindowUpdateFramesPerDataFrameSent: wrapperspb.UInt32(maxWindowUpdates),
	}
}

// processorCluster reaches the plugin over HTTP/2.
func processorCluster(pack *packer, p *parsed) *clusterv3.Cluster {
	c := cluster(pluginCluster, []address{p.processor})
	c.CircuitBreakers = openBreakers()
	setHTTPOptions(pack, c, &upstreamhttpv3.HttpProtocolOptions{UpstreamProtocolOptions: explicitHTTP2(&corev3.Http2ProtocolOptions{
		ConnectionKeepalive: keepalive(),
	})})
	if p.ProcessorTLS != (ProcessorTLS{}) {
		c.TransportSocket = processorSocket(pack, p.processor.host, p.ProcessorTLS)
	}
	return c
}

func keepalive() *corev3.KeepaliveSettings {
	return &corev3.KeepaliveSettings{Interval: durationpb.New(keepaliveInterval), Timeout: durationpb.New(keepaliveTimeout)}
}

func cluster(name string, addrs []address) *clusterv3.Cluster {
	kind, family := clusterv3.Cluster_STATIC, clusterv3.Cluster_AUTO
	endpoints := make([]*endpointv3.LbEndpoint, len(addrs))
	for i, a := range addrs {
		if !a.isIP() {
			// Not AUTO, which takes only ::1 of a name like localhost where most servers listen on 127.0.0.1.
			kind, family = clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_V4_PREFERRED
		}
		endpoints[i] = &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: a.proto()},
		}}
	}
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind},
		DnsLookupFamily:      family,
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: endpoints}},
		},
	}
}

func explicitHTTP2(o *corev3.Http2ProtocolOptions) *upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: o},
		},
	}
}

// httpOptionsKey is the extension Envoy looks a cluster's protocol options up by.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func setHTTPOptions(pack *packer, c *clusterv3.Cluster, o *upstreamhttpv3.HttpProtocolOptions) {
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: pack.any(o)}
}

// tlsSocket verifies the upstream: Envoy checks nothing unless told which authorities and which names to accept.
// The name sent and accepted is the endpoint's own, never one taken from the request.
func tlsSocket(pack *packer, endpoints []Upstream, ca string) *corev3.TransportSocket {
	names := make([]*tlsv3.SubjectAltNameMatcher, len(endpoints))
	for i, u := range endpoints {
		kind := tlsv3.SubjectAltNameMatcher_DNS
		if _, err := netip.ParseAddr(u.Host); err == nil {
			kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
		}
		names[i] = &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: exact(u.Host)}
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack.any(&tlsv3.UpstreamTlsContext{
			AutoHostSni: true,
			CommonTlsContext: &tlsv3.CommonTlsContext{
				ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
					ValidationContext: &tlsv3.CertificateValidationContext{
						TrustedCa:                 &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: ca}},
						MatchTypedSubjectAltNames: names,
					},
				},
			},
		})},
	}
}

func exact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func prefix(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}
