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
	Store  Store
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

// Tier is a way to answer. Exactly one of Model, Cache and Template is set.
type Tier struct {
	Name     string
	Model    *Model
	Cache    *Cached
	Template *Template
}

// Model is compute behind a limiter.
type Model struct {
	Concurrency int // requests in flight in this process; at least 1
	Queue       int // requests waiting in this process; 0 means none may wait
	Order       Order
	Rewrite     Rewrite
}

// Rewrite is what is changed of a request that a tier runs, so that it reaches the tier's model. The zero value changes
// nothing.
type Rewrite struct {
	// Model replaces the model named in the body, or in the path where the dialect has it there; "": kept.
	Model string
	// Path replaces what the route's match compares: the prefix, or the whole path; the query stays. "": kept.
	Path string
	// Headers are set on the request, overwriting; names are lower case, in order.
	Headers []Header
}

// Header is one header field.
type Header struct{ Name, Value string }

// Cached is a tier that answers from the store what a model tier of the ladder has answered before.
type Cached struct {
	StaleFor time.Duration // how long past its time an answer may still be given, as stale; 0: not at all
}

// Template is a tier that answers with a fixed text.
type Template struct {
	Text string // never empty
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
	// Dwell is how long a lower tier that was entered because a better one was busy is kept to; default 2 s.
	Dwell time.Duration
	// ReplaceEmpty: an empty JSON answer is replaced by a tier that needs no compute (`on: {empty: next}`).
	ReplaceEmpty bool
	// Retries is how often Envoy may repeat a request that broke before an answer's headers: 0, the default, or 1.
	Retries     int
	RetryBudget int          // the most requests that may be repeated, in percent; three always may
	Cache       *Cache       // nil: answers are not kept
	Idempotency *Idempotency // nil: idempotency keys are not read
}

// DefaultRetryBudget is the retry budget of a route that states none, in percent; it is Envoy's own default too.
const DefaultRetryBudget = 20

// Cache says which answers of a route are kept, and under which key.
type Cache struct {
	TTL       time.Duration // how long an answer is fresh; default 60 s
	Schema    string        // of the prompts; part of the key, so that a new one starts afresh
	Normalize Normalize
	Ignore    []string // top-level members of the request that are no part of the key
	Partition []string // request headers, lower case, that split the key beside the caller's credentials
	// Anonymous: requests without credentials share answers. False, the default: their answers are not kept.
	Anonymous bool
	// Sampled: answers to requests that state a temperature above 0 are kept too; default false.
	Sampled bool
}

// Normalize is how prompts are made equal in a cache key.
type Normalize uint8

// The normalizations; the zero value is the default.
const (
	NormalizeWhitespace Normalize = iota // strings of the prompt are trimmed and their white space collapsed
	NormalizeExact                       // byte for byte, for code
	numNormalizes
)

// Idempotency says how idempotency keys are kept.
type Idempotency struct {
	Header string        // request header, lower case; default idempotency-key
	TTL    time.Duration // how long an answer is repeated; default 24 h
}

// Store is where answers that may be replayed live.
type Store struct {
	Memory int64  // bytes of answers kept in this process, when Redis is nil; default 256 MiB
	Redis  *Redis // nil: the memory of this process
	// SecretFile holds the key of the HMAC over callers' credentials; "": a random one at each start. With Redis it is
	// never "".
	SecretFile string
}

// Redis is a store that several replicas share.
type Redis struct {
	Address      string // HOST:PORT
	Username     string // "": none
	PasswordFile string // "": none
	TLS          bool
	Prefix       string        // of every key; default "brownout:"
	Timeout      time.Duration // after which a request goes on without the store; default 20 ms
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
	// WaitOver, with HasWaitOver: the rung is taken when the wait in the tier above is expected to be longer.
	WaitOver    time.Duration
	HasWaitOver bool
}

// Failure says what Envoy does with a route's requests when brownout is away.
type Failure uint8

// The failure modes; the zero value is the default.
const (
	FailOpen   Failure = iota // requests go to the upstream unprotected
	FailClosed                // requests are answered 503
	numFailures
)
