// Package policy is the brownout policy file: its types, defaults, strict loading, validation, compilation,
// matching and JSON Schema.
//
// The way of a file is Load, which reads the text and checks each value by itself, then Compile, which checks
// what fields say together and returns a Snapshot. Parse does both. Neither stops at the first mistake: all
// problems of a file come at once, each with its line, column and, where one is known, a remedy.
//
// Invariants: a Snapshot is only built from a file without errors, has every default filled in, and is never
// changed after Compile, so any goroutine may read it without a lock. The package reads no file, clock or
// network, starts no goroutine and knows nothing of the rooms that use it. One table of fields (see field)
// drives the loader, the schema and the reference in docs/policy.md, so that the three cannot disagree.
package policy
