package extproc

import "time"

// Record is what is known of one request when it has ended. Strings are the words of the metrics; "" where a thing
// does not apply.
type Record struct {
	Route, Class       string
	Outcome, Source    string
	Tier, Degraded     string        // the tier that ran it; why the answer is not the full one
	Answerer           string        // the tier whose replay or template was the answer
	Retries            int           // of Envoy at the upstream
	Shed, ShedTier     string        // why it was refused; the tier of the first refusal
	Status             int           // sent to the caller, 0: none
	UpstreamOutcome    string        // how the upstream did, when it was reached
	Duration, Upstream time.Duration // since arrival; since the slot was taken, 0 without one
	FirstToken         time.Duration // from the slot to the first content of a stream, 0: not seen
	Dialect, Terminal  string        // of a stream that we ended: its dialect and why
	Cut, Sealed        bool          // the upstream died in its answer; the seal told so
	Details            string        // Envoy's response code details, of an answer it wrote itself
	Finish             string        // the upstream's last finish reason, as it sent it
	Input, Output      int           // tokens, as the upstream counted them; 0: not said
	Bytes              int64         // of a watched answer's body, that went on
}

// Observer hears of everything that is counted. Its methods are called on request paths: they must not block. They
// may be called concurrently. One that panics harms no request: it is logged, and what it was told is lost.
type Observer interface {
	// Arrived: a request came; route is "none" when no route matched.
	Arrived(route string)
	// Finished: the same request ended. Called once per Arrived.
	Finished(Record)
	// Waited: a request left a tier's queue after d; zero for a slot at once.
	Waited(tier, class string, d time.Duration)
	// Ignored: a request header's value was of no use.
	Ignored(header string)
	// Replayed: something happened to a kept answer or an idempotency key; result is a word from a closed set.
	Replayed(result string)
	// EnvoyStale: the Envoy in front runs a configuration that does not fit, or fits again.
	EnvoyStale(stale bool)
}

// RouteNone is the route of requests that match none.
const RouteNone = "none"

type nobody struct{}

func (nobody) Arrived(string)                       {}
func (nobody) Finished(Record)                      {}
func (nobody) Waited(string, string, time.Duration) {}
func (nobody) Ignored(string)                       {}
func (nobody) Replayed(string)                      {}
func (nobody) EnvoyStale(bool)                      {}

// guarded keeps the failures of an Observer from the requests it hears of: counting is not worth a request, and still
// less the slots of others, on whose goroutines it may be called.
type guarded struct {
	Observer
	complain func(what string, p any)
}

func (g guarded) Arrived(route string) {
	defer g.catch()
	g.Observer.Arrived(route)
}

func (g guarded) Finished(r Record) {
	defer g.catch()
	g.Observer.Finished(r)
}

func (g guarded) Waited(tier, class string, d time.Duration) {
	defer g.catch()
	g.Observer.Waited(tier, class, d)
}

func (g guarded) Ignored(header string) {
	defer g.catch()
	g.Observer.Ignored(header)
}

func (g guarded) Replayed(result string) {
	defer g.catch()
	g.Observer.Replayed(result)
}

func (g guarded) EnvoyStale(stale bool) {
	defer g.catch()
	g.Observer.EnvoyStale(stale)
}

// catch is deferred.
func (g guarded) catch() {
	if p := recover(); p != nil {
		g.complain("observer failed, the request goes on", p)
	}
}
