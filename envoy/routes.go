package envoy

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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
// it one for those of them that are to be sealed, and one for those that carry none (brownout away, or a tier this
// configuration does not know), which goes to the route's best tier. Before them all come those that match the route's
// name instead of a path which the plugin may have changed. A last route takes what the policy does not match; it passes
// ext_proc too, which counts it.
func routes(pack *packer, s *policy.Snapshot, p *parsed) []*routev3.Route {
	b := routeBuilder{pack: pack, s: s, p: p}
	var list []*routev3.Route
	for i := range s.Routes {
		r := &s.Routes[i]
		for _, tier := range modelTiers(s, r) {
			if renames(s, tier) {
				list = append(list, b.rung(r, tier, namedMatch)...)
			}
		}
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		tiers := modelTiers(s, r)
		for _, tier := range tiers {
			list = append(list, b.rung(r, tier, tierMatch)...)
		}
		list = append(list, b.without(r, tiers[0]))
	}
	rest := action(unmatchedCluster)
	setHostRewrite(rest, p.upstreams[firstModelTier(s)])
	return append(list, &routev3.Route{
		Name:   unmatchedCluster,
		Match:  match(policy.Match{}),
		Action: &routev3.Route_Route{Route: rest},
	})
}

// routeBuilder holds what every route is made from.
type routeBuilder struct {
	pack *packer
	s    *policy.Snapshot
	p    *parsed
}

// rung is how requests of r that carry a tier get to it: the sealed way, where there is one, and the plain one.
func (b routeBuilder) rung(r *policy.Route, tier string, match func(*policy.Route, string) *routev3.RouteMatch) []*routev3.Route {
	var list []*routev3.Route
	if sealed(r) && b.p.seal != nil {
		a := action(sealCluster)
		a.RetryPolicy = retryPolicy(r, true)
		list = append(list, b.route(r, r.Name+"/"+tier+sealedSuffix, sealedMatch(match(r, tier)), a))
	}
	a := target(tier, b.p)
	a.RetryPolicy = retryPolicy(r, false)
	return append(list, b.route(r, r.Name+"/"+tier, match(r, tier), a))
}

// without is where requests of r go that carry no tier. The plugin has changed nothing in them, so Envoy does what it can
// of what the tier rewrites: all but the model's name.
func (b routeBuilder) without(r *policy.Route, tier string) *routev3.Route {
	a := target(tier, b.p)
	rewrite := modelOf(b.s, tier).Rewrite
	if rewrite.Path != "" {
		a.PrefixRewrite = rewrite.Path // of an exact path, the whole
	}
	out := b.route(r, r.Name, match(r.Match), a)
	for _, h := range rewrite.Headers {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h.Name, Value: strings.ReplaceAll(h.Value, "%", "%%")}, // no format of Envoy's
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}

// renames reports whether requests of a tier can leave the plugin with another path: it has one of its own, or another
// model, which some dialects name in the path.
func renames(s *policy.Snapshot, tier string) bool {
	r := modelOf(s, tier).Rewrite
	return r.Model != "" || r.Path != ""
}

// modelOf is a model tier by name; of a name that is none, one that rewrites nothing.
func modelOf(s *policy.Snapshot, tier string) *policy.Model {
	for _, t := range s.Tiers {
		if t.Name == tier && t.Model != nil {
			return t.Model
		}
	}
	return &policy.Model{}
}

// namedMatch takes requests of r that carry a tier, whatever their path: by the names that only the plugin can set.
func namedMatch(r *policy.Route, tier string) *routev3.RouteMatch {
	m := match(policy.Match{})
	m.Headers = append(m.Headers, header(RouteHeader, exact(r.Name)), header(tierHeader, exact(tier)))
	return m
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

func (b routeBuilder) route(r *policy.Route, name string, m *routev3.RouteMatch, a *routev3.RouteAction) *routev3.Route {
	out := &routev3.Route{Name: name, Match: m, Action: &routev3.Route_Route{Route: a}}
	a.IdleTimeout = idleTimeout(b.s, r)
	limitBody(out, b.s, r, b.p)
	if len(r.Match.Methods) > 0 && !slices.Contains(r.Match.Methods, "GET") {
		// An upgrade goes around ext_proc, and a route without GET has no use for one.
		a.UpgradeConfigs = []*routev3.RouteAction_UpgradeConfig{{UpgradeType: "websocket", Enabled: wrapperspb.Bool(false)}}
	}
	if r.Failure == policy.FailClosed {
		out.TypedPerFilterConfig = map[string]*anypb.Any{extProcFilter: b.pack.any(&extprocv3.ExtProcPerRoute{
			Override: &extprocv3.ExtProcPerRoute_Overrides{Overrides: &extprocv3.ExtProcOverrides{
				FailureModeAllow: wrapperspb.Bool(false),
			}},
		})}
	}
	return out
}

// idleTimeout keeps Envoy from cutting a silent answer before the plugin ends it: it lies above `stream.idle`, and is off
// where that is. Nil: that of all routes is long enough.
func idleTimeout(s *policy.Snapshot, r *policy.Route) *durationpb.Duration {
	switch idle := r.Stream.Idle; {
	case !r.Stream.Watch || (idle > 0 && idle+time.Minute <= streamIdle(s)):
		return nil
	case idle == 0:
		return durationpb.New(0)
	default:
		return durationpb.New(idle + time.Minute)
	}
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
