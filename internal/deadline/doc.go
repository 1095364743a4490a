// Package deadline turns what a caller states about its time into instants on the monotonic clock, once per
// request. It is pure: now is an argument, and a time.Time read once carries the monotonic reading along.
//
//	budget    how long the caller waits
//	deadline  arrival + budget
//	reserve   kept back to answer in: min(50 ms, 5 % of the budget)
//	killAt    deadline − reserve
//
// Bounds only ever shorten, so they need no trust. Of several the smallest counts; a value of zero or less says that
// the time is gone; anything that is not a number is ignored and reported.
package deadline
