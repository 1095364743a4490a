// Package redis is a replay.Store in a Redis server, which several replicas share.
//
// A value is what another program may have written: it is checked whole, and one that is not ours counts as absent. A
// claim is a value with a lease, renewed by its owner and lapsing when the owner dies; scripts in the server compare its
// token before they change it, so that nobody ends what another one owns.
//
// No method blocks its caller. Operations go through a bounded queue to a fixed number of goroutines, which the store owns
// and Close waits for; a full queue refuses at once. After several failures in a row every operation fails at once, and
// one goroutine asks the server once a second whether it is back. Callbacks run on goroutines of the store, or on the
// caller's when nothing was asked.
package redis
