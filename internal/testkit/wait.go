package testkit

import (
	"net"
	"testing"
	"time"
)

// pollInterval is how often a condition is looked at. It costs little and adds at most this much to a wait.
const pollInterval = 5 * time.Millisecond

// Eventually waits until ok returns true and ends the test with msg if that takes longer than d. ok runs on the
// test's goroutine and may use t.
func Eventually(t testing.TB, d time.Duration, ok func() bool, msg string) {
	t.Helper()
	if !poll(d, ok) {
		t.Fatalf("after %v: %s", d, msg)
	}
}

// poll reports whether ok became true within d. It looks once more after the end, so that a machine which paused
// the test for all of d does not fail it.
func poll(d time.Duration, ok func() bool) bool {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}

// FreeAddr returns a loopback address nobody listens on at the moment. Prefer port 0 where the process can tell the
// port it got: another process may take this one first.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("choosing a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().String()
}
