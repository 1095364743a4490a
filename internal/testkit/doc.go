// Package testkit holds what end-to-end tests share: a real Envoy, the brownout binary, other processes, and waiting
// with a deadline. Only test files import it.
//
// A part that is missing fails the test; nothing here skips one. Every process is started on ports the kernel
// chooses, killed and waited for when its test ends, and its log is printed when the test has failed. The helpers
// that take a testing.TB must be called from the test's own goroutine, as they may end the test.
package testkit
