// Package degrade decides when a request goes past a busy tier to the one below it, and how long that choice is kept to.
//
// A lower tier that is entered because a better one is busy is kept to for the dwell, so that traffic around the threshold
// does not swing between two models: entered when the wait expected in the better tier is above wait_over, left when
// the dwell is over and that wait is below half of it. A free slot in the better tier is always used; whoever asks here
// has found none.
//
// Pure: time is an argument. A Dwell is not safe for concurrent use.
package degrade
