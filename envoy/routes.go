package envoy

import (
	"regexp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

// tierHeader is set by the plugin in the admitting reply together with clear_route_cache.
const tierHeader = "x-tier"

// routes lists, for each route of the policy in its order, one route per rung for requests that carry its tier, before
// it one for those of them that are to be sealed, and one for those that carry none (brownout away, or a tier this configuration does not know), which goes to the
// route's best tier. A last route takes what the policy does not match; it passes ext_proc too, which counts it.
func routes(pack *packer, s *policy.Snapshot, p *parsed) []*routev3.Route {
	var list []*routev3.Route
	for i := range s.Routes {
		r := &s.Routes[i]
		tiers := modelTiers(s, r)
		for _, tier := range tiers {
			if sealed(r) && p.seal != nil {
				list = append(list, route(pack, r, r.Name+"/"+tier+sealedSuffix, sealedMatch(tierMatch(r, tier)), action(sealCluster)))
			}
			list = append(list, route(pack, r, r.Name+"/"+tier, tierMatch(r, tier), target(tier, p)))
		}
		list = append(list, route(pack, r, r.Name, match(r.Match), target(tiers[0], p)))
	}
	rest := action(unmatchedCluster)
	setHostRewrite(rest, p.upstreams[firstModelTier(s)])
	return append(list, &routev3.Route{
		Name:   unmatchedCluster,
		Match:  match(policy.Match{}),
		Action: &routev3.Route_Route{Route: rest},
	})
}

// tierMatch narrows the route's match to requests that carry a tier.
func tierMatch(r *policy.Route, tier string) *routev3.RouteMatch {
	m := match(r.Match)
	m.Headers = append(m.Headers, header(tierHeader, exact(tier)))
	return m
}

// modelTiers names the tiers of r's ladder that are compute, best first. A ladder without any gets the policy's first
// model tier, so that there is a cluster to fall back to.
func modelTiers(s *policy.Snapshot, r *policy.Route) []string {
	var names []string
	for _, rung := range r.Ladder {
		if t := s.Tiers[rung.Tier]; t.Model != nil {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		names = append(names, firstModelTier(s))
	}
	return names
}

// firstModelTier is the tier whose endpoints also serve what no route matches; parse makes sure that there is one.
func firstModelTier(s *policy.Snapshot) string {
	for _, t := range s.Tiers {
		if t.Model != nil {
			return t.Name
		}
	}
	return ""
}

func route(pack *packer, r *policy.Route, name string, m *routev3.RouteMatch, a *routev3.RouteAction) *routev3.Route {
	out := &routev3.Route{Name: name, Match: m, Action: &routev3.Route_Route{Route: a}}
	if len(r.Match.Methods) > 0 && !slices.Contains(r.Match.Methods, "GET") {
		// An upgrade goes around ext_proc, and a route without GET has no use for one.
		a.UpgradeConfigs = []*routev3.RouteAction_UpgradeConfig{{UpgradeType: "websocket", Enabled: wrapperspb.Bool(false)}}
	}
	if r.Failure == policy.FailClosed {
		out.TypedPerFilterConfig = map[string]*anypb.Any{extProcFilter: pack.any(&extprocv3.ExtProcPerRoute{
			Override: &extprocv3.ExtProcPerRoute_Overrides{Overrides: &extprocv3.ExtProcOverrides{
				FailureModeAllow: wrapperspb.Bool(false),
			}},
		})}
	}
	return out
}

func target(tier string, p *parsed) *routev3.RouteAction {
	a := action(tierCluster(tier))
	setHostRewrite(a, p.upstreams[tier])
	return a
}

// action has no timeout of its own: the plugin ends what takes too long, and a route timeout that expires in the
// middle of an answer is a reset.
func action(cluster string) *routev3.RouteAction {
	return &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          durationpb.New(0),
	}
}

// setHostRewrite sends a TLS upstream that is reached by name its own name as host, as its certificate has it.
// Plain upstreams get the caller's host.
func setHostRewrite(a *routev3.RouteAction, endpoints []Upstream) {
	if len(endpoints) == 0 || endpoints[0].Scheme != SchemeHTTPS {
		return
	}
	for _, u := range endpoints {
		if !(address{host: u.Host}).isIP() {
			a.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
		}
	}
}

// match translates a policy match. Envoy's exact path ignores the query like the policy's does; so does a prefix
// in effect, for a policy's prefix holds no question mark.
func match(m policy.Match) *routev3.RouteMatch {
	out := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	switch {
	case m.Path.Exact != "":
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: m.Path.Exact}
	case m.Path.Prefix != "":
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: m.Path.Prefix}
	}
	switch len(m.Methods) {
	case 0:
	case 1:
		out.Headers = append(out.Headers, header(":method", exact(m.Methods[0])))
	default:
		out.Headers = append(out.Headers, header(":method", oneOf(m.Methods)))
	}
	return out
}

func header(name string, value *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value},
	}
}

// oneOf matches any of the words whole: Envoy's expressions are anchored at both ends.
func oneOf(words []string) *matcherv3.StringMatcher {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = regexp.QuoteMeta(w)
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: strings.Join(quoted, "|")},
	}}
}
