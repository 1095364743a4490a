// Package limit caps the work in flight on one model tier and orders what waits for it.
//
// A request offers itself once. It is admitted and owns a Ticket, it is parked in a bounded queue, or it is refused.
// A parked request is a heap entry, not a goroutine: what becomes of it arrives by callback, exactly once, unless the
// owner abandons it first. Order edf: higher priority first, then the earliest deadline, then arrival.
//
// Invariants: used ≤ limit unless the limit was lowered; nobody waits while a slot is free; the queue never holds
// more than its bound; a ticket frees its slot once however often it is ended; an entry whose time to give up has
// come is never admitted.
//
// Any goroutine may call any method; none blocks. Callbacks run on the goroutine of whichever call decided
// them, or of one already delivering, with no lock held; they may call the limiter again.
package limit
