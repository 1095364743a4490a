package envoy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/envoy-brownout/brownout/policy"
)

// routed finds the route Envoy takes, by Envoy's rules: first match wins, path matches ignore the query, a header
// matcher needs the header to be there.
func routed(list []*routev3.Route, method, path, tier string) *routev3.Route {
	return routedSealed(list, method, path, tier, "")
}

// routedSealed is routed for a request that also carries a value of SealHeader.
func routedSealed(list []*routev3.Route, method, path, tier, mark string) *routev3.Route {
	headers := map[string]string{":method": method}
	if mark != "" {
		headers[SealHeader] = mark
	}
	if tier != "" {
		headers[tierHeader] = tier
	}
	for _, r := range list {
		if pathMatches(r.Match, path) && headersMatch(r.Match, headers) {
			return r
		}
	}
	return nil
}

func pathMatches(m *routev3.RouteMatch, path string) bool {
	if p, ok := m.PathSpecifier.(*routev3.RouteMatch_Path); ok {
		path, _, _ = strings.Cut(path, "?")
		return path == p.Path
	}
	return strings.HasPrefix(path, m.GetPrefix())
}

func headersMatch(m *routev3.RouteMatch, headers map[string]string) bool {
	for _, h := range m.Headers {
		value, present := headers[h.Name]
		ok := value == h.GetStringMatch().GetExact()
		if re := h.GetStringMatch().GetSafeRegex(); re != nil {
			ok = regexp.MustCompile("^(?:" + re.Regex + ")$").MatchString(value)
		}
		if !present || !ok {
			return false
		}
	}
	return true
}

func TestEnvoyTakesTheRouteThePolicyMatchesAndTheClusterOfTheTier(t *testing.T) {
	s := chatPolicy()
	s.Routes = append(s.Routes, policy.Route{
		Name: "rest of v1", Budget: s.Budget, Ladder: []policy.Rung{{Tier: 1}, {Tier: 0}},
		Match: policy.Match{Path: policy.PathMatch{Prefix: "/v1/"}},
	})
	p, err := chatOptions().parse(s)
	if err != nil {
		t.Fatal(err)
	}
	list := routes(new(packer), s, p)
	matched := 0
	for _, method := range []string{"GET", "POST", "PUT"} {
		for _, path := range []string{"/", "/v1/chat/completions", "/v1/chat/completions?x=1", "/v1/batch", "/v1/batch?x", "/v1/batch/2", "/v1/x", "/v2"} {
			for _, tier := range []string{"", "full", "small", "unknown"} {
				name, cluster := unmatchedCluster, unmatchedCluster
				if r, ok := s.Match(method, path); ok {
					matched++
					name, cluster = expected(s, r, tier)
				}
				got := routed(list, method, path, tier)
				if got.GetName() != name || got.GetRoute().GetCluster() != cluster {
					t.Errorf("%s %s tier %q: route %q cluster %q, want %q and %q", method, path, tier, got.GetName(), got.GetRoute().GetCluster(), name, cluster)
				}
			}
		}
	}
	if matched == 0 {
		t.Error("no case matched the policy")
	}
}

// expected is the route and cluster of a request that r matches: its tier's if that is on the ladder, else the best.
func expected(s *policy.Snapshot, r *policy.Route, tier string) (name, cluster string) {
	for _, rung := range r.Ladder {
		if s.Tiers[rung.Tier].Name == tier {
			return r.Name + "/" + tier, "tier_" + tier
		}
	}
	return r.Name, "tier_" + s.Tiers[r.Ladder[0].Tier].Name
}

func TestARequestWithoutATierGoesToTheBestThatComputes(t *testing.T) {
	s := chatPolicy()
	s.Tiers = append([]policy.Tier{{Name: "cached", Cache: &policy.Cached{}}, {Name: "canned", Template: &policy.Template{Text: "sorry"}}}, s.Tiers...)
	s.Routes = s.Routes[:1]
	s.Routes[0].Ladder = []policy.Rung{{Tier: 0}, {Tier: 3}, {Tier: 2}, {Tier: 1}}
	p, err := chatOptions().parse(s)
	if err != nil {
		t.Fatal(err)
	}
	list := routes(new(packer), s, p)
	for tier, want := range map[string]string{"": "tier_small", "small": "tier_small", "full": "tier_full", "cached": "tier_small", "canned": "tier_small"} {
		if got := routed(list, "POST", "/v1/chat/completions", tier); got.GetRoute().GetCluster() != want {
			t.Errorf("tier %q goes to %s, want %s", tier, got.GetRoute().GetCluster(), want)
		}
	}
	if got, want := knownRoutes(s), "chat/small,chat/full"; got != want {
		t.Errorf("announced routes %s, want %s", got, want)
	}
	if _, err := (Options{Listen: "127.0.0.1:1", Upstreams: []Upstream{{Tier: "cached", Host: "h", Port: 1}}}).parse(s); err == nil || !strings.Contains(err.Error(), `no model tier "cached"`) {
		t.Errorf("an upstream of a tier that needs none: %v", err)
	}
}

func TestBodiesAreBufferedOnRoutesThatNeedThemAlone(t *testing.T) {
	s := chatPolicy()
	s.Routes[0].Idempotency = &policy.Idempotency{}
	for limit, want := range map[int64]uint64{0: DefaultBodyLimit, 1 << 20: 1 << 20} {
		p, err := with(func(o *Options) { o.BodyLimit = limit }).parse(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes(new(packer), s, p) {
			needs := strings.HasPrefix(r.Name, "chat")
			if got := r.RequestBodyBufferLimit; (got != nil) != needs || (needs && got.GetValue() != want) {
				t.Errorf("route %s: limit %v, want one of %d: %v", r.Name, got, want, needs)
			}
		}
		if got := announcedLimit(s, p); got != int64(want) {
			t.Errorf("announced %d, want %d", got, want)
		}
	}
	p, err := chatOptions().parse(chatPolicy())
	if err != nil || announcedLimit(chatPolicy(), p) != 0 {
		t.Errorf("no route needs a body, but a limit is announced (%v)", err)
	}
	for _, limit := range []int64{-1, largestBodyLimit + 1} {
		if _, err := with(func(o *Options) { o.BodyLimit = limit }).parse(s); err == nil || !strings.Contains(err.Error(), "body-limit") {
			t.Errorf("limit %d: error %v", limit, err)
		}
	}
}

func TestOnlyClustersOfRoutesWithRetriesHaveABudgetForThem(t *testing.T) {
	s := sealedPolicy()
	s.Routes[1].Retries = 1 // not sealed, small alone
	count := func(s *policy.Snapshot) (names []string) {
		p, err := chatOptions().parse(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range clusters(new(packer), s, p) {
			if c.CircuitBreakers.Thresholds[0].RetryBudget != nil {
				names = append(names, c.Name)
			}
		}
		return names
	}
	if got := strings.Join(count(s), " "); got != "tier_small" {
		t.Errorf("budgets in %s, want tier_small", got)
	}
	s.Routes[0].Retries = 1
	if got := strings.Join(count(s), " "); got != "tier_full tier_small brownout_seal" {
		t.Errorf("budgets in %s, want the tiers and the seal", got)
	}
	if got := count(sealedPolicy()); got != nil {
		t.Errorf("budgets in %v of a policy without retries", got)
	}
}

func TestOnlyFailClosedRoutesOverrideTheFilter(t *testing.T) {
	s := chatPolicy()
	p, err := chatOptions().parse(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes(new(packer), s, p) {
		_, overridden := r.TypedPerFilterConfig[extProcFilter]
		if want := strings.HasPrefix(r.Name, "batch"); overridden != want {
			t.Errorf("route %s: overrides the filter: %v, want %v", r.Name, overridden, want)
		}
	}
}

func TestTierBreakersLetEverySlotChangeHandsAtOnce(t *testing.T) {
	for _, m := range []policy.Model{{Concurrency: 1}, {Concurrency: 4, Queue: 8}, {Concurrency: 5000, Queue: 10000}} {
		b := tierBreakers(&m).Thresholds[0]
		if int(b.MaxRequests.Value) < 2*m.Concurrency || int(b.MaxConnections.Value) < 2*m.Concurrency || int(b.MaxPendingRequests.Value) < 2*m.Concurrency+m.Queue {
			t.Errorf("%+v: %v", m, b)
		}
	}
}

// Envoy's own idle timeout is a cut in the middle of an answer; the plugin's ends it.
func TestEnvoyIsMorePatientThanStreamIdle(t *testing.T) {
	s := &policy.Snapshot{}
	for _, c := range []struct {
		stream policy.Stream
		want   string // "" for that of all routes
	}{
		{policy.Stream{Watch: true, Idle: 20 * time.Second}, ""},
		{policy.Stream{Watch: true, Idle: 4 * time.Minute}, ""},
		{policy.Stream{Watch: true, Idle: 10 * time.Minute}, "11m0s"},
		{policy.Stream{Watch: true}, "0s"},
		{policy.Stream{}, ""},
	} {
		got := ""
		if d := idleTimeout(s, &policy.Route{Stream: c.stream}); d != nil {
			got = d.AsDuration().String()
		}
		if got != c.want {
			t.Errorf("idle %s, watched %t: idle timeout %q, want %q", c.stream.Idle, c.stream.Watch, got, c.want)
		}
	}
}
