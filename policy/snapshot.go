package policy

import "time"

// Snapshot is a compiled policy: defaults filled in, references resolved, nothing left to look up. It is
// immutable after Compile and safe to share; a request keeps the snapshot it arrived under.
type Snapshot struct {
	// Hash identifies the policy source: the first 16 hex digits of the SHA-256 of the file's bytes.
	Hash     string
	Budget   Budget
	Priority Priority
	// Tiers holds every tier of the file in file order; Rung.Tier indexes it.
	Tiers  []Tier
	Routes []Route
}

// Budget says how long a caller waits when it states nothing, and what it may ask for at most.
type Budget struct {
	Header  string        // request header carrying the budget in milliseconds, lower case; default x-budget-ms
	Default time.Duration // used when the caller states nothing; default 2.5 s
	Max     time.Duration // cap on what a caller may state; default 10 s
	// DefaultCovers says what the default budget bounds: the first content of a streamed answer, or the whole
	// answer. A stated budget always covers the whole answer.
	DefaultCovers Covers
}

// Covers is what a budget bounds.
type Covers uint8

// The two coverages; the zero value is the default.
const (
	CoversFirstContent Covers = iota // of a stream, the time to its first content
	CoversWhole                      // the whole answer
	numCovers
)

// Priority maps a request header to a scheduling class.
type Priority struct {
	Header  string         // lower case; default x-priority
	Values  map[string]int // header value → priority, higher runs first; default {high: 10}
	Default int            // priority of requests without a known value; default 0
	Trust   Trust
}

// Trust says whose priority header is believed.
type Trust uint8

// The trust levels; the zero value is the default.
const (
	TrustAll      Trust = iota // every caller's
	TrustInternal              // only requests Envoy marked x-envoy-internal: true
	numTrusts
)

// Tier is a way to answer. In this version every tier is a model tier.
type Tier struct {
	Name  string
	Model *Model
}

// Model is compute behind a limiter.
type Model struct {
	Concurrency int // requests in flight in this process; at least 1
	Queue       int // requests waiting in this process; 0 means none may wait
	Order       Order
}

// Order is the discipline of a tier's queue.
type Order uint8

// The orders; the zero value is the default.
const (
	OrderEDF Order = iota // priority, then earliest deadline, then arrival
	numOrders
)

// Route is the policy entry a request matches.
type Route struct {
	Name    string
	Match   Match
	Budget  Budget // the file's budget with the route's own fields applied
	Ladder  []Rung // best first; never empty
	Failure Failure
	// ShedStatus maps a shed reason to the HTTP status it is answered with; reasons not listed answer 503.
	ShedStatus map[string]int
	Stream     Stream
}

// Match selects requests. Empty fields match everything.
type Match struct {
	Methods []string // upper case
	Path    PathMatch
}

// PathMatch compares the request path without its query. At most one field is set.
type PathMatch struct {
	Prefix string
	Exact  string
}

// Stream says how a route's answers are watched.
type Stream struct {
	// Watch: bodies are watched, so that one that is cut or late ends honestly. False: `stream: false`; the fields below
	// then mean nothing.
	Watch bool
	// Seal: answers take one more hop, which turns an upstream that died into an end that can be written to.
	Seal       bool
	Idle       time.Duration // longest silence between data of a stream; 0: unbounded; default 20 s
	Linger     time.Duration // how long a complete stream may stay open; default 2 s
	FirstToken time.Duration // longest wait for the first content, counted from admission; 0: unbounded, the default
	Max        time.Duration // longest stream, counted from its headers; 0: unbounded, the default
	// Dialect overrides the one the path and content type tell: a dialect's name, or "" for none.
	Dialect     string
	EvidenceEOF bool     // `evidence: eof`: the service sends no proof of completion
	Terminal    Terminal // how an incomplete stream is ended
	HoldHeaders bool     // headers wait for the first event, so that a late or failed start is a status; default true
}

// Terminal is how an incomplete stream is ended.
type Terminal uint8

// The terminals; the zero value is the default.
const (
	TerminalPolyglot Terminal = iota // our frame as a legal last object of the dialect
	TerminalBare                     // our frame alone
	TerminalError                    // an error every client of the dialect raises
	numTerminals
)

// Rung is one step of a ladder.
type Rung struct {
	Tier int // index into Snapshot.Tiers
}

// Failure says what Envoy does with a route's requests when brownout is away.
type Failure uint8

// The failure modes; the zero value is the default.
const (
	FailOpen   Failure = iota // requests go to the upstream unprotected
	FailClosed                // requests are answered 503
	numFailures
)
