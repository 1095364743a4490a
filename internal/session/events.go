package session

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Event is something that happened to the request. The set is closed.
type Event interface{ event() }

// RequestHeaders: the request's headers arrived. They go to the engine unread.
type RequestHeaders struct {
	Dialect dialect.ID // that the path tells
	Known   bool       // the path tells one
	Mistral bool       // the path is one of Mistral's API alone
	Head    bool       // its answer has no body
	Array   bool       // the path asks for one JSON array, piece by piece (Gemini without alt=sse)
}

// Watch says how the body of an answer is watched.
type Watch struct {
	Idle, Linger    time.Duration // 0: unbounded
	FirstToken, Max time.Duration // 0: unbounded
	Stream          dialect.Options
	Dialect         dialect.ID // overrides what the path tells, if Pinned
	Pinned          bool
	Hold            bool // headers wait for the first unit
	Sealed          bool // an upstream that dies shows as a cut trailer
	Pass            bool // not at all: its pieces only pass through here
}

// Unmatched: no route of the policy matches.
type Unmatched struct{}

// Parked: the request waits in a queue.
type Parked struct {
	Route  string
	GiveUp time.Time // when the wait ends at the latest
}

// NeedBody: the decision needs the request's body.
type NeedBody struct {
	Route    string
	Deadline deadline.Deadline
	// ExpiredStatus is the HTTP status of a shed for deadline_expired, should the body not be there in time.
	ExpiredStatus int
	Pinned        *dialect.ID // as in Refused
}

// Answered: there is an answer without the upstream: a replay, a template, or an error of the caller's.
type Answered struct {
	Route   string
	Reply   outcome.Reply
	Outcome outcome.Outcome
	Tier    string           // that answers; "": none
	Reason  outcome.Degraded // why it stands in for a better one
}

// Fallen is the reply to the effect Fallback: what stands in for an answer that failed, or nil.
type Fallen struct{ Answer *Answered }

// Admitted: a tier gave a slot. The driver holds the ticket until Finish or ReleaseSlot.
type Admitted struct {
	Route    string
	Tier     string
	Reason   outcome.Degraded // none: the first tier
	Deadline deadline.Deadline
	// ExpiredStatus is the HTTP status of a shed for deadline_expired, should no time be left to use the slot.
	ExpiredStatus int
	Watch         *Watch // nil: the body is not watched

	// Rewritten: what Envoy tells routes by may be changed, so it is told the route by name.
	Rewritten bool
	Path      string           // to ask for instead; "": as it is
	Headers   []outcome.Header // to set on the request
	Body      []byte           // to send instead; nil: as it is
	Retry     bool             // Envoy may repeat the request should it break before the answer's headers
	// Fallback: the effect Fallback may have an answer should this one fail; ReplaceEmpty: also if it holds nothing.
	Fallback, ReplaceEmpty bool
	Keep                   int // bytes of the answer to keep for Finish.Kept; 0: none
}

// Refused: every accepted tier refused.
type Refused struct {
	Route      string
	Reason     outcome.Shed
	Tier       string // of the first refusal
	Status     int
	RetryAfter time.Duration
	Pinned     *dialect.ID // the dialect the policy says, whatever the path tells; nil: it says none
}

// ResponseHeaders: the answer's headers arrived.
type ResponseHeaders struct {
	Status      int
	ContentType string
	// FromEnvoy: Envoy wrote the answer itself, with Details as its response code details.
	FromEnvoy bool
	Details   string
	// Degraded: the upstream itself says x-degraded: true; a brownout further in.
	Degraded                 bool
	RetryAfter, RetryAfterMs string // as received
	Encoded                  bool   // the body has a content-encoding
	// Dropped is the upstream's own word for why it gave the request up, as a scheduler in front of it says in a header;
	// Unknown: nothing said.
	Dropped   outcome.Outcome
	NoRetry   bool // it also says that a repeat would do no better
	EndOfBody bool // there is no body
	// Headers are all of them, if the answer is to be kept.
	Headers  []outcome.Header
	Attempts int // of Envoy at the upstream, as it says; 0: not said
}

// ResponseTrailers: the answer's trailers arrived. Cut: they are the seal's, and say that the upstream died.
type ResponseTrailers struct{ Cut bool }

// Body: a piece of a body, or request trailers. Data is not changed afterwards.
type Body struct {
	Phase Phase
	Data  []byte
	End   bool // nothing follows
}

// Phase is where in the exchange a message belongs.
type Phase uint8

// The phases that carry bodies or request trailers.
const (
	RequestBody Phase = iota
	RequestTrailers
	ResponseBody
)

// UpstreamCut: the seal has lost the upstream in an answer it cannot end honestly; closure follows.
type UpstreamCut struct{}

// Wake: the time NextWake named has come.
type Wake struct {
	// Blocked: the caller does not take what is there of the answer, so a silence is not the upstream's.
	Blocked bool
}

// Closed: the exchange is over or torn down; nothing more will be heard.
type Closed struct{}

func (RequestHeaders) event()   {}
func (Unmatched) event()        {}
func (Parked) event()           {}
func (NeedBody) event()         {}
func (Answered) event()         {}
func (Fallen) event()           {}
func (Admitted) event()         {}
func (Refused) event()          {}
func (ResponseHeaders) event()  {}
func (ResponseTrailers) event() {}
func (Body) event()             {}
func (UpstreamCut) event()      {}
func (Wake) event()             {}
func (Closed) event()           {}
