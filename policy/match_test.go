package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// matchPolicy is a policy whose routes overlap in every way.
const matchPolicy = `
version: 1
tiers: {full: {model: {concurrency: 1, queue: 0}}}
routes:
- {name: exact,  match: {method: POST, path: {exact: /v1/chat}}, ladder: [full]}
- {name: prefix, match: {method: [POST, PUT], path: {prefix: /v1/ch}}, ladder: [full]}
- {name: method, match: {method: DELETE}, ladder: [full]}
- {name: path,   match: {path: {prefix: /health}}, ladder: [full]}
`

func mustParse(t testing.TB, src string) *Snapshot {
	t.Helper()
	s, problems := Parse("test.yaml", []byte(src))
	if s == nil {
		t.Fatal(problems)
	}
	return s
}

func TestMatchTakesTheFirstRouteThatFitsMethodAndPathWithoutQuery(t *testing.T) {
	s := mustParse(t, matchPolicy)
	for _, tc := range []struct{ method, path, want string }{
		{"POST", "/v1/chat", "exact"},
		{"POST", "/v1/chat?a=1", "exact"},
		{"POST", "/v1/chat#top", "exact"},
		{"POST", "/v1/chat#top?a=1", "exact"},
		{"POST", "/v1/chat/", "prefix"},
		{"POST", "/v1/chatter", "prefix"}, // a prefix is bytes, not segments
		{"PUT", "/v1/chat", "prefix"},
		{"POST", "/v1/c?h=/v1/chat", ""},
		{"POST", "/V1/chat", ""},        // bytes are compared, case included
		{"POST", "/v1/%63hat", ""},      // and nothing is decoded
		{"POST", "//v1/chat", ""},       // nor normalized
		{"post", "/v1/chat", ""},        // methods are case-sensitive
		{"DELETE", "", "method"},        // a route without a path takes any, also none
		{"DELETE", "*", "method"},       //
		{"GET", "/healthz", "path"},     // a route without a method takes any
		{"", "/health?", "path"},        //
		{"GET", "/v1/chat", ""},         //
		{"GET", "?/health", ""},         // only a query
		{"GET", "/healt", ""},           // shorter than the prefix
		{"DELETE", "/health", "method"}, // the first wins
	} {
		got, ok := s.Match(tc.method, tc.path)
		if name := routeName(got); name != tc.want || ok != (tc.want != "") {
			t.Errorf("Match(%q, %q) = %q, %v, want %q", tc.method, tc.path, name, ok, tc.want)
		}
	}
}

func routeName(r *Route) string {
	if r == nil {
		return ""
	}
	return r.Name
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s := mustParse(t, matchPolicy)
	allocs := testing.AllocsPerRun(100, func() {
		s.Match("POST", "/v1/chat/completions?api-version=1")
		s.Match("GET", "/nothing/here")
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

// TestShadowingAgreesWithTryingEveryRequest checks the reachability rule against all requests of a small world.
func TestShadowingAgreesWithTryingEveryRequest(t *testing.T) {
	paths := []string{"", "*", "/", "/a", "/a/", "/a/b", "/ab", "/b", "/b/a"}
	methods := []string{"GET", "PUT", "anything else"}
	rapid.Check(t, func(t *rapid.T) {
		routes := rapid.SliceOfN(rapid.Custom(drawMatch), 1, 5).Draw(t, "routes")
		i := len(routes) - 1
		reached := false
		for _, m := range methods {
			for _, p := range paths {
				first := slices.IndexFunc(routes, func(r Match) bool { return r.matches(m, p) })
				reached = reached || first == i
			}
		}
		if by := shadowing(routes, i); (by == nil) != reached {
			t.Fatalf("shadowing of the last of %+v: %v; some request reaches it: %v", routes, by, reached)
		}
	})
}

func drawMatch(t *rapid.T) Match {
	// Paths of three letters at most, and every longer one of the small world, tell all these apart.
	p := rapid.SampledFrom([]PathMatch{{}, {Prefix: "/"}, {Prefix: "/a"}, {Prefix: "/a/"}, {Prefix: "/b"}, {Exact: "/a"}, {Exact: "/a/b"}, {Exact: "/b"}}).Draw(t, "path")
	m := rapid.SampledFrom([][]string{nil, {"GET"}, {"PUT"}, {"GET", "PUT"}}).Draw(t, "methods")
	return Match{Methods: m, Path: p}
}

func BenchmarkMatch(b *testing.B) {
	s := mustParse(b, matchPolicy)
	b.ReportAllocs()
	for b.Loop() {
		s.Match("POST", "/v1/chat/completions?api-version=1")
	}
}
