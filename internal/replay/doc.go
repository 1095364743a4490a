// Package replay holds what lets an answer be given twice and paid for once: the keys that requests are known by, the
// entries that are kept, the store they lie in, and flights, in which identical requests wait for the one that runs.
//
// A key is an HMAC over every credential of a request and over all that may change its answer, each part with its length,
// so that no two tenants and no two requests share one. Keys, requests, entries and stores print nothing of what they
// hold, by any verb of fmt and in JSON. That does not reach into private fields of other packages' types: who keeps a
// Key there does not print the type that has it.
//
// Invariants: a store hands out only what was saved whole, and never after its time to keep; a claim has one owner at a
// time, who settles it or releases it; of a flight one request is the leader, and every follower hears of its end once.
//
// Any goroutine may call anything here. Nothing blocks, no lock is held while a callback runs, and time is an argument.
package replay
