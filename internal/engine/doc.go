// Package engine decides what becomes of a request: it matches the route, resolves the deadline and walks the ladder
// of tiers until one admits or parks the request, or all have refused. The answer is a Verdict, a value.
//
// A request keeps the policy snapshot it arrived under; limiters persist over reloads by tier name. A tier the
// policy no longer has takes no new offers, and its waiters stay until a slot or their time to give up comes.
//
// Any goroutine may call any method; none blocks and no lock is held while calling out. The verdict of a parked
// request is delivered once, on the goroutine that decided it, possibly before Offer has returned.
package engine
