package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// The policy room knows no core type, so it lists the shed reasons itself; they must be the same words.
func TestThePolicyKnowsTheShedReasons(t *testing.T) {
	var want []string
	for _, s := range outcome.Sheds() {
		want = append(want, s.String())
	}
	if got := policy.ShedReasons(); !slices.Equal(got, want) {
		t.Errorf("policy: %v\noutcome: %v", got, want)
	}
}

// TestEveryPolicyThatValidatesAlsoBuilds generates policies out of every field there is, valid and not. One that the
// policy room accepts makes an engine, and a request for any of its routes gets a verdict that fits it.
func TestEveryPolicyThatValidatesAlsoBuilds(t *testing.T) {
	built, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		src := drawPolicy(t)
		s, _ := policy.Parse("drawn.yaml", []byte(src))
		if s == nil {
			refused++
			return
		}
		built++
		e := New(epoch, s, Options{})
		for i := range s.Routes {
			offerTo(t, e, s, i)
		}
		e.Apply(at(1), s)
		if st := e.Dump(at(1), true); len(st.Tiers) != len(s.Tiers) || st.PolicyHash != s.Hash {
			t.Fatalf("dump %+v of\n%s", st, src)
		}
	})
	t.Logf("%d policies built, %d refused", built, refused)
	if built < refused/4 || refused == 0 {
		t.Errorf("%d policies built, %d refused: the generator is lopsided", built, refused)
	}
}

// offerTo offers a request made for route i. An earlier route may take it; the verdict must fit whichever did.
func offerTo(t *rapid.T, e *Engine, s *policy.Snapshot, i int) {
	m := s.Routes[i].Match
	r := Request{Method: "GET", Path: m.Path.Exact + m.Path.Prefix, Headers: []outcome.Header{
		{Name: s.Budget.Header, Value: "1000"}, {Name: s.Priority.Header, Value: "high"}}}
	if len(m.Methods) > 0 {
		r.Method = m.Methods[0]
	}
	want, ok := s.Match(r.Method, r.Path)
	if !ok {
		t.Fatalf("route %s does not match what it asks for: %+v", s.Routes[i].Name, r)
	}
	v, w := e.Offer(at(0), r, func(Verdict) {})
	switch {
	case v.Route != want.Name:
		t.Fatalf("route %q, want %q", v.Route, want.Name)
	case v.Kind == Admitted && v.Ticket == nil, v.Kind == Parked && w == nil, v.Kind == Unmatched:
		t.Fatalf("verdict %+v", v)
	case v.Kind == Shed && v.ShedStatus != 503 && v.ShedStatus != 429:
		t.Fatalf("shed with status %d", v.ShedStatus)
	case v.Kind == Parked:
		w.Abandon()
	case v.Kind == Admitted:
		// The next request of the route finds the slot taken: it waits, goes down the ladder, or is shed.
		v2, w2 := e.Offer(at(0), r, func(Verdict) {})
		if v2.Kind == Unmatched {
			t.Fatalf("second verdict %+v", v2)
		}
		if v2.Ticket != nil {
			v2.Ticket.Done(at(1))
		}
		if w2 != nil {
			w2.Abandon()
		}
		v.Ticket.Done(at(1))
	}
}

// drawPolicy writes a policy file. Most of its values are valid; some are at or past a bound.
func drawPolicy(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("version: 1\n")
	maybe(t, &b, "budget: {default: %s, max: %s, default_covers: %s, header: %s}\n",
		[]string{"1ms", "500ms", "2.5s"}, []string{"2.5s", "10s", "24h"}, []string{"first_content", "whole"}, []string{"x-budget-ms", "X-Patience"})
	maybe(t, &b, "priority: {header: %s, map: %s, default: %s, trust: %s}\n",
		[]string{"x-priority", "x-class"}, []string{"{high: 10}", "{high: 1000, low: -1000}", "{}"}, []string{"0", "-5", "1001"}, []string{"all", "internal"})
	tiers := []string{"full", "small", "spare"}[:rapid.IntRange(1, 3).Draw(t, "tiers")]
	b.WriteString("tiers:\n")
	for _, name := range tiers {
		limit := pick(t, "1", "4", "1000000", "{total: 7, replicas: 3}", "{total: 1, replicas: 10000}", "0")
		fmt.Fprintf(&b, "  %s: {model: {concurrency: %s, queue: %s}}\n", name, limit, pick(t, "0", "1", "8", "1000000"))
	}
	b.WriteString("routes:\n")
	for i := range rapid.IntRange(1, 3).Draw(t, "routes") {
		fmt.Fprintf(&b, "- name: route-%d\n  ladder: %s\n", i, ladder(t, tiers))
		maybe(t, &b, "  match: {method: %s, path: {%s: %s}}\n",
			[]string{"POST", "[GET, POST]", "BREW"}, []string{"prefix", "exact"}, []string{"/", "/v1/chat", "/v1/x%20y"})
		maybe(t, &b, "  failure: %s\n", []string{"open", "closed"})
		maybe(t, &b, "  shed: {status: {%s: %s}}\n", policy.ShedReasons(), []string{"429", "503", "500"})
		maybe(t, &b, "  budget: {default: %s, max: %s}\n", []string{"1ms", "400ms"}, []string{"1ms", "2s"})
	}
	return b.String()
}

// ladder is a list of some of the tiers, in some order.
func ladder(t *rapid.T, tiers []string) string {
	order := rapid.Permutation(tiers).Draw(t, "order")
	return "[" + strings.Join(order[:rapid.IntRange(1, len(order)).Draw(t, "rungs")], ", ") + "]"
}

// maybe writes a line half of the time, with one of the choices for each verb of the format.
func maybe(t *rapid.T, b *strings.Builder, format string, choices ...[]string) {
	if !rapid.Bool().Draw(t, "given") {
		return
	}
	args := make([]any, len(choices))
	for i, c := range choices {
		args[i] = pick(t, c...)
	}
	fmt.Fprintf(b, format, args...)
}

func pick(t *rapid.T, choices ...string) string { return rapid.SampledFrom(choices).Draw(t, "choice") }
