// Package archtest proves the rules of the source tree: imports point one way, the pure rooms stay pure, every package
// has one package comment, and calls that the project bans with a reason do not appear.
//
// The checker works on parsed source held in memory, so each rule is itself tested on small sources that break it.
// Only test files import this package; `go test ./internal/archtest` checks the repository.
package archtest
