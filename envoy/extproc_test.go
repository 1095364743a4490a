package envoy

import (
	"slices"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/policy"
)

func TestForwardedHeadersHoldThePolicysNamesAndNoCredentials(t *testing.T) {
	s := chatPolicy()
	s.Priority.Header = "X-Class"
	s.Routes[1].Budget.Header = "x-patience"
	got := ForwardedHeaders(s)
	for _, name := range []string{":path", ":status", "x-budget-ms", "x-class", "x-patience", "x-tier", "retry-after", "grpc-timeout"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not forwarded", name)
		}
	}
	for _, name := range []string{"", "X-Class", "x-priority", "authorization", "cookie", "x-api-key"} {
		if slices.Contains(got, name) {
			t.Errorf("%q is forwarded", name)
		}
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("not sorted or not unique: %v", got)
	}
}

func TestForwardedHeadersOfOneSnapshotDoNotLeakIntoTheNext(t *testing.T) {
	s := chatPolicy()
	s.Budget.Header = "a-first-header"
	ForwardedHeaders(s)
	if got := ForwardedHeaders(chatPolicy()); slices.Contains(got, "a-first-header") {
		t.Error("a header of another policy is forwarded")
	}
}

func TestWhereAnswersAreKeptAllIsForwardedButWhatNobodyReads(t *testing.T) {
	for what, change := range map[string]func(*policy.Route){
		"cache":       func(r *policy.Route) { r.Cache = &policy.Cache{Partition: []string{"user-agent", "x-team"}} },
		"idempotency": func(r *policy.Route) { r.Idempotency = &policy.Idempotency{Header: "idempotency-key"} },
	} {
		s := chatPolicy()
		change(&s.Routes[1])
		rules := forwardRules(s)
		if rules.AllowedHeaders != nil || ForwardedHeaders(s) != nil {
			t.Errorf("%s: only some headers are forwarded: %v", what, rules)
		}
		withheld := WithheldHeaders(s)
		if len(rules.DisallowedHeaders.GetPatterns()) != len(withheld) || !slices.IsSorted(withheld) {
			t.Errorf("%s: withheld %v, rendered %v", what, withheld, rules.DisallowedHeaders)
		}
		if !slices.Contains(withheld, "set-cookie") || slices.Contains(withheld, "authorization") || slices.Contains(withheld, "cookie") {
			t.Errorf("%s: withheld %v", what, withheld)
		}
		if got, want := slices.Contains(withheld, "user-agent"), what != "cache"; got != want {
			t.Errorf("%s: user-agent withheld: %v, want %v", what, got, want)
		}
	}
}

func TestFurtherHeadersAreForwardedWhereTheyAreOfUse(t *testing.T) {
	s := chatPolicy()
	s.Routes[0].Retries = 1
	s.Tiers = append(s.Tiers, policy.Tier{Name: "canned", Template: &policy.Template{Text: "sorry"}})
	s.Routes[1].Ladder = append(s.Routes[1].Ladder, policy.Rung{Tier: 2})
	for _, name := range []string{"x-stainless-retry-count", "accept"} {
		if !slices.Contains(ForwardedHeaders(s), name) || slices.Contains(ForwardedHeaders(chatPolicy()), name) {
			t.Errorf("%s: forwarded %v, and without use for it %v", name, ForwardedHeaders(s), ForwardedHeaders(chatPolicy()))
		}
	}
}

func TestMaxWaitLiesAboveEveryBudgetAndWithinEnvoysBound(t *testing.T) {
	for _, c := range []struct{ largest, want time.Duration }{
		{10 * time.Second, 11 * time.Second},
		{time.Minute, 61 * time.Second},
		{100 * time.Millisecond, 3 * time.Second}, // never below message_timeout
		{2 * time.Hour, time.Hour},
	} {
		s := chatPolicy()
		s.Budget.Max, s.Budget.Default = c.largest, c.largest
		for i := range s.Routes {
			s.Routes[i].Budget = s.Budget
		}
		if got := maxWait(s); got != c.want {
			t.Errorf("largest budget %v: got %v, want %v", c.largest, got, c.want)
		}
		if _, err := Bootstrap(s, chatOptions()); err != nil {
			t.Errorf("largest budget %v: %v", c.largest, err)
		}
	}
}
