package envoy

import (
	"time"

	"github.com/envoy-brownout/brownout/policy"
)

// chatPolicy is a policy with two tiers and two routes, the second one fail-closed with a larger cap.
func chatPolicy() *policy.Snapshot {
	budget := policy.Budget{Header: "x-budget-ms", Default: 2500 * time.Millisecond, Max: 10 * time.Second}
	patient := budget
	patient.Max = 30 * time.Second
	return &policy.Snapshot{
		Hash:     "0123456789abcdef",
		Budget:   budget,
		Priority: policy.Priority{Header: "x-priority", Values: map[string]int{"high": 10}},
		Tiers: []policy.Tier{
			{Name: "full", Model: &policy.Model{Concurrency: 4, Queue: 8}},
			{Name: "small", Model: &policy.Model{Concurrency: 16, Queue: 32}},
		},
		Routes: []policy.Route{
			{
				Name:   "chat",
				Match:  policy.Match{Methods: []string{"POST"}, Path: policy.PathMatch{Prefix: "/v1/chat/completions"}},
				Budget: budget,
				Ladder: []policy.Rung{{Tier: 0}, {Tier: 1}},
			},
			{
				Name:    "batch",
				Match:   policy.Match{Methods: []string{"GET", "POST"}, Path: policy.PathMatch{Exact: "/v1/batch"}},
				Budget:  patient,
				Ladder:  []policy.Rung{{Tier: 1}},
				Failure: policy.FailClosed,
			},
		},
	}
}

// chatOptions gives chatPolicy its addresses.
func chatOptions() Options {
	return Options{
		Listen: "0.0.0.0:8080",
		Upstreams: []Upstream{
			{Tier: "full", Host: "10.0.0.1", Port: 8000},
			{Tier: "small", Scheme: SchemeH2C, Host: "small.svc", Port: 8000},
		},
		Admin:     DefaultAdmin,
		AccessLog: DefaultAccessLog,
	}
}
