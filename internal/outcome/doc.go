// Package outcome holds brownout's words for how an exchange ends: the closed enums of shed reasons, degraded
// reasons, outcomes and sources, and the tables that map each to an HTTP status, headers, a metric label and the
// sample a limiter learns from. It is pure: no clock, no state. Any goroutine may call it.
//
// Every request ends in exactly one Outcome. When several hold, the one earlier in the list wins.
package outcome
