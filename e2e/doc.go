// Package e2e tests brownout as its users run it: a real Envoy with the configuration `brownout envoy bootstrap`
// renders, the real binary, and real clients and upstreams on loopback. It has tests only.
//
// The tests observe from outside: answers, Envoy's statistics and access log, the metrics and the admin page.
// `make e2e` runs them on the pinned default Envoy, `make e2e ENVOY_VERSION=…` on another one, `make full` on all.
package e2e
