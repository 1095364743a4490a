// Package watch notices when a policy file changes and hands its new content over, once per change.
//
// It watches directories, never the file: editors and configuration systems replace files, and a watch on a
// replaced file is silent for ever. Watched are the directory of the file and, where the file is a symbolic
// link, the directory of every step of the chain, which covers the ..data swap of a mounted Kubernetes ConfigMap;
// their parents are watched too, to notice that a directory itself was replaced. Any event starts a short wait
// for the end of the burst; then the file is read and its hash compared with that of the content seen last. A
// slow poll does the same without an event, for file systems that send none.
//
// The package keeps no policy: what was in force stays in force with the caller when a change cannot be read or
// is refused. It does not look into the text; a file caught half-written is told from a whole one by the
// caller's refusal, and is read again when the writer goes on. A half-written file that happens to be a valid
// policy cannot be told: writers should write beside the file and rename.
//
// A Watcher runs in the goroutine that calls Run; both callbacks are called from there, one at a time.
package watch
