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
	dwell    optional[time.Duration]
	store    part[rawStore]
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
	// At most one of these is set; Load reports any other number.
	model    part[rawModel]
	cache    part[rawCached]
	template part[rawTemplate]
}

type rawCached struct {
	staleFor optional[time.Duration]
}

type rawTemplate struct {
	text optional[string]
}

type rawModel struct {
	concurrency rawConcurrency
	queue       optional[int]
	order       optional[Order]
	rewrite     part[rawRewrite]
}

type rawRewrite struct {
	model   optional[string]
	path    optional[string]
	headers optional[[]Header]
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

	dwell       optional[time.Duration]
	cache       part[rawCache]
	idempotency part[rawIdempotency]
	retry       rawRetry
	on          rawOn
}

type rawCache struct {
	ttl               optional[time.Duration]
	schema            optional[string]
	normalize         optional[Normalize]
	ignore, partition optional[[]string]
	anonymous         optional[anonymous]
	sampled           optional[bool]
}

type rawIdempotency struct {
	header optional[string]
	ttl    optional[time.Duration]
}

type rawRetry struct {
	retries, budget optional[int]
}

type rawOn struct {
	empty optional[onEmpty]
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
	tier     string
	at       position
	waitOver optional[time.Duration]
}

// rawStream is `stream`; off is `stream: false`, and then nothing else but at is set.
type rawStream struct {
	at                            position // of the value; zero if the route has none
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

type rawStore struct {
	memory part[rawMemory]
	redis  part[rawRedis]
	secret optional[string]
}

type rawMemory struct {
	max optional[int64]
}

type rawRedis struct {
	address, username, password, prefix optional[string]
	tls                                 optional[bool]
	timeout                             optional[time.Duration]
}
