// Package session is the life of one request as a pure state machine: an event goes in, effects come out. It knows
// no clock, goroutine, lock, log or protocol buffer; whoever drives it reads the time, performs the effects in order
// and feeds back what happens. It is not safe for concurrent use: one event at a time.
//
//	start ──RequestHeaders──► asking ──Unmatched──► ended (passes untouched)
//	                            │ ╲
//	                            │  Parked ► parked ─┐
//	                            │                   │
//	                            ├─────Admitted◄─────┤  a slot is held
//	                            │        ├──no time left──► ended (the slot goes back, 503)
//	                            │        ▼          │  Continue goes out
//	                            │     admitted ──killAt──► ended (504)
//	                            │        │ ResponseHeaders
//	                            │        ▼          │
//	                            │     holding ──killAt, cut──► ended (504, 502)
//	                            │        │          │  watched answers only: their headers wait for the first event
//	                            │        ▼          │
//	                            │     answered ──end of answer, trailers, closure──► ended
//	                            │        └──deadline, silence, cut, no evidence──► ended (terminal frame, or reset)
//	                            └──Refused◄─────────┘
//	                                  └───────────► ended (503)
//
// Every path reaches ended once, with one Finish effect, on the first signal that tells. Events after that are
// ignored, save that a late grant is given back.
package session
