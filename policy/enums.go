package policy

import "time"

// The words of the closed sets, as the policy file spells them, indexed by value.
var (
	coversNames  = [numCovers]string{CoversFirstContent: "first_content", CoversWhole: "whole"}
	trustNames   = [numTrusts]string{TrustAll: "all", TrustInternal: "internal"}
	orderNames   = [numOrders]string{OrderEDF: "edf"}
	failureNames = [numFailures]string{FailOpen: "open", FailClosed: "closed"}

	terminalNames = [numTerminals]string{TerminalPolyglot: "polyglot", TerminalBare: "bare", TerminalError: "error"}
	evidenceNames = [numEvidences]string{evidenceDialect: "dialect", evidenceEOF: "eof"}
	holdNames     = [numHolds]string{holdEvent: "event", holdNone: "none"}

	normalizeNames = [numNormalizes]string{NormalizeWhitespace: "whitespace", NormalizeExact: "exact"}
	anonymousNames = [numAnonymous]string{anonymousNever: "never", anonymousShare: "share"}
	onEmptyNames   = [numOnEmpty]string{onEmptyPass: "pass", onEmptyNext: "next"}
)

// String returns the word the policy file uses.
func (c Covers) String() string { return word(coversNames[:], int(c)) }

// String returns the word the policy file uses.
func (t Trust) String() string { return word(trustNames[:], int(t)) }

// String returns the word the policy file uses.
func (o Order) String() string { return word(orderNames[:], int(o)) }

// String returns the word the policy file uses.
func (f Failure) String() string { return word(failureNames[:], int(f)) }

// String returns the word the policy file uses.
func (t Terminal) String() string { return word(terminalNames[:], int(t)) }

// String returns the word the policy file uses.
func (n Normalize) String() string { return word(normalizeNames[:], int(n)) }

func word(names []string, i int) string {
	if i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// ShedReasons returns every reason a request can be shed for, in the order the reference lists them. It is a
// closed set: shed.status accepts these names and no other.
func ShedReasons() []string {
	return []string{"queue_full", "deadline_expired", "infeasible", "displaced", "paused", "memory", "shutting_down"}
}

// Defaults returns what applies where a policy file says nothing. Its tiers and routes are empty: those have no
// default. Defaults that are the zero value of their type (order edf, failure open) need no entry here.
func Defaults() Snapshot {
	return Snapshot{
		Budget: Budget{
			Header:        "x-budget-ms",
			Default:       2500 * time.Millisecond,
			Max:           10 * time.Second,
			DefaultCovers: CoversFirstContent,
		},
		Priority: Priority{
			Header:  "x-priority",
			Values:  map[string]int{"high": 10},
			Default: 0,
			Trust:   TrustAll,
		},
		Store: Store{Memory: 256 << 20},
	}
}

// DefaultStream returns how the answers of a route are watched that says nothing about it.
func DefaultStream() Stream {
	return Stream{Watch: true, Seal: true, Idle: 20 * time.Second, Linger: 2 * time.Second, HoldHeaders: true}
}

// defaultDwell is how long a lower tier is kept to where a policy file does not say.
const defaultDwell = 2 * time.Second

// DefaultCache returns what `cache: {}` means.
func DefaultCache() Cache { return Cache{TTL: time.Minute} }

// DefaultIdempotency returns what `idempotency: {}` means.
func DefaultIdempotency() Idempotency {
	return Idempotency{Header: "idempotency-key", TTL: 24 * time.Hour}
}

// DefaultRedis returns what a Redis store means that states only its address.
func DefaultRedis() Redis { return Redis{Prefix: "brownout:", Timeout: 20 * time.Millisecond} }
