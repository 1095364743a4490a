// Package envoy renders the Envoy configuration a compiled policy needs.
//
// Bootstrap writes a complete configuration: one listener, its routes, the ext_proc filter and the clusters, and, where
// a route of the policy is sealed, the way over the seal: its cluster and the inner listener it comes back by. The
// shapes are fixed; what varies comes from two places. The policy contributes routes, ladders, failure modes, header
// names, budget caps, concurrency, rewrites, retries and which requests are decided about with their body; Options
// contributes addresses and the size of those bodies, which are not policy. ConfigHash covers the first and the shapes
// but nothing of the second, so a plugin can tell that an Envoy runs what an older policy rendered.
//
// Names in the output: cluster tier_NAME per model tier, cluster unmatched for requests no route of the policy
// matches (the endpoints of the policy's first model tier, without that tier's limits), cluster brownout for the plugin,
// cluster brownout_seal for the seal, listeners front and inner, and route ROUTE/TIER per rung that computes,
// ROUTE/TIER/sealed before it, with a route ROUTE for requests that carry no tier. Tiers that need no compute have none:
// their answers come from the plugin itself.
//
// Everything here is a pure function of its arguments: it reads no file, clock or network and may be called from
// any goroutine. Every message is checked with its ValidateAll before it is rendered.
package envoy
