package policy

import "time"

// File is a policy file that has been read: every value checked by itself, with the place it came from, but
// nothing yet checked against anything else. It is immutable; Compile may be called any number of times.
type File struct {
	name string // as given to Load
	hash string // as in Snapshot.Hash
	ok   bool   // Load found no error

	version  optional[int]
	budget   rawBudget
	priority rawPriority
	tiers    []rawTier
	routes   []rawRoute
}

// rawBudget is the budget of the file or of a route; a route has no header of its own.
type rawBudget struct {
	header optional[string]
	def    optional[time.Duration]
	max    optional[time.Duration]
	covers optional[Covers]
}

type rawPriority struct {
	header optional[string]
	values optional[map[string]int]
	def    optional[int]
	trust  optional[Trust]
}

type rawTier struct {
	name  string
	named bool // the name is valid
	at    position
	model rawModel
}

type rawModel struct {
	concurrency rawConcurrency
	queue       optional[int]
	order       optional[Order]
}

// rawConcurrency is either a limit for this process, in total with replicas unset, or one shared by replicas.
type rawConcurrency struct {
	at       position
	total    optional[int]
	replicas optional[int]
}

type rawRoute struct {
	at      position
	name    optional[string]
	match   rawMatch
	ladder  rawLadder
	failure optional[Failure]
	shed    rawShed
	budget  rawBudget
	stream  rawStream
}

type rawMatch struct {
	at      position // of the mapping; zero if the route has none
	bad     bool     // some part of it was refused
	methods []string
	path    rawPath
}

type rawPath struct {
	prefix, exact optional[string]
}

type rawLadder struct {
	set, bad bool
	at       position
	rungs    []rawRung
}

type rawRung struct {
	tier string
	at   position
}

// rawStream is `stream`; off is `stream: false`, and then nothing else is set.
type rawStream struct {
	off                           bool
	seal                          optional[bool]
	idle, linger, firstToken, max optional[time.Duration]
	dialect                       optional[string]
	evidence                      optional[evidence]
	terminal                      optional[Terminal]
	hold                          optional[hold]
}

type rawShed struct {
	status map[string]int
}
