package outcome

// Shed is why brownout refused a request. The zero value is no shed.
type Shed uint8

// The shed reasons.
const (
	ShedNone            Shed = iota
	ShedQueueFull            // no slot, and no room or no wish to wait
	ShedDeadlineExpired      // the caller's time was gone before a slot came free
	ShedInfeasible           // waiting would leave too little time to be served
	ShedDisplaced            // a more important request took the place in the queue
	ShedPaused               // the tier is paused after its upstream asked for silence
	ShedMemory               // the queue's byte bound is reached
	ShedShuttingDown         // brownout is ending
	numSheds
)

var shedNames = [numSheds]string{"", "queue_full", "deadline_expired", "infeasible", "displaced", "paused", "memory", "shutting_down"}

// String is the reason as callers and metrics see it.
func (s Shed) String() string { return name(shedNames[:], s) }

// Sheds lists every shed reason.
func Sheds() []Shed { return list[Shed](numSheds) }

// ShedByName finds a shed reason by the name callers see.
func ShedByName(s string) (Shed, bool) { return byName[Shed](shedNames[:], s) }

// Degraded is why an answer is not the full answer. The zero value is not degraded.
type Degraded uint8

// The degraded reasons.
const (
	DegradedNone              Degraded = iota
	DegradedQueuePressure              // a better tier was too busy
	DegradedDeadline                   // time ran out
	DegradedSlowFirstToken             // the first content came too late
	DegradedStalled                    // the stream fell silent
	DegradedUpstreamError              // the upstream failed
	DegradedUpstreamThrottled          // the upstream asked for less
	DegradedUpstreamTruncated          // the upstream's answer was cut
	DegradedPreempted                  // the upstream evicted the job
	DegradedEmpty                      // the upstream's answer held nothing
	DegradedStale                      // the cached answer is past its time
	numDegraded
)

var degradedNames = [numDegraded]string{"", "queue_pressure", "deadline", "slow_first_token", "stalled", "upstream_error",
	"upstream_throttled", "upstream_truncated", "preempted", "empty", "stale"}

// String is the reason as callers and metrics see it.
func (d Degraded) String() string { return name(degradedNames[:], d) }

// DegradedByName finds a degraded reason by the name callers see.
func DegradedByName(s string) (Degraded, bool) { return byName[Degraded](degradedNames[:], s) }

// AllDegraded lists every degraded reason.
func AllDegraded() []Degraded { return list[Degraded](numDegraded) }

// Outcome is how one exchange ended. Lower values win when several hold; the zero value is no outcome yet.
type Outcome uint8

// The outcomes, by precedence.
const (
	Unknown       Outcome = iota
	ClientAborted         // the caller left first
	ShedOutcome           // refused by brownout
	Deadline              // the deadline passed before the answer was whole
	Evicted               // accepted by the upstream, then thrown out
	Truncated             // the answer ended without its end
	Stalled               // the stream fell silent
	Quota                 // the caller's or account's quota is spent
	Throttled             // the upstream answered 429
	Overloaded            // the upstream said it has no capacity
	UpstreamError         // the upstream failed, or was not reached
	BadRequest            // the upstream refused the request itself
	Empty                 // 200 with nothing inside
	Refusal               // the model declined; an answer
	Capped                // ended at a length limit; an answer
	Replayed              // answered from the store
	DegradedOK            // a lower tier answered well
	OK                    // the first tier answered well
	Unmatched             // no route matched: passed untouched
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"unknown", "client_aborted", "shed", "deadline", "evicted", "truncated", "stalled", "quota", "throttled",
	"overloaded", "upstream_error", "bad_request", "empty", "refusal", "capped", "replayed", "degraded", "ok", "unmatched"}

// String is the metric label of the outcome.
func (o Outcome) String() string { return name(outcomeNames[:], o) }

// Outcomes lists every outcome an exchange can end in.
func Outcomes() []Outcome { return list[Outcome](numOutcomes) }

// First is whichever of a and b takes precedence; Unknown never does.
func First(a, b Outcome) Outcome {
	if a == Unknown || (b != Unknown && b < a) {
		return b
	}
	return a
}

// Source is who wrote the answer, as the x-brownout-source header says. The zero value is nobody yet.
type Source uint8

// The sources.
const (
	SourceNone     Source = iota
	SourceShed            // brownout refused
	SourceDeadline        // brownout ended it at the deadline
	SourceReplay          // the store
	SourceTemplate        // a fixed text
	SourceDefer           // accepted for later
	SourceUpstream        // the model server
	SourceEnvoy           // Envoy itself: nothing upstream was reached, or it broke before headers
	numSources
)

var sourceNames = [numSources]string{"", "shed", "deadline", "replay", "template", "defer", "upstream", "envoy"}

// String is the value of the x-brownout-source header.
func (s Source) String() string { return name(sourceNames[:], s) }

// Sample is what a finished exchange teaches a limiter (after Netflix concurrency-limits: success, ignore, drop).
type Sample uint8

// The samples; the zero value teaches nothing.
const (
	SampleIgnore  Sample = iota // says nothing about capacity
	SampleSuccess               // served; its time counts
	SampleDrop                  // the upstream is over capacity
	numSamples
)

var sampleNames = [numSamples]string{"ignore", "success", "drop"}

// String names the sample in dumps.
func (s Sample) String() string { return name(sampleNames[:], s) }

func name[E ~uint8](names []string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return "invalid"
}

func list[E ~uint8](num E) []E {
	all := make([]E, 0, int(num))
	for e := E(1); e < num; e++ {
		all = append(all, e)
	}
	return all
}

func byName[E ~uint8](names []string, s string) (E, bool) {
	for i, n := range names {
		if n == s && n != "" {
			return E(i), true
		}
	}
	return 0, false
}
