package session

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Event is something that happened to the request. The set is closed.
type Event interface{ event() }

// RequestHeaders: the request's headers arrived. They go to the engine unread.
type RequestHeaders struct{}

// Unmatched: no route of the policy matches.
type Unmatched struct{}

// Parked: the request waits in a queue.
type Parked struct {
	Route  string
	GiveUp time.Time // when the wait ends at the latest
}

// Admitted: a tier gave a slot. The driver holds the ticket until Finish or ReleaseSlot.
type Admitted struct {
	Route    string
	Tier     string
	Reason   outcome.Degraded // none: the first tier
	Deadline deadline.Deadline
	// ExpiredStatus is the HTTP status of a shed for deadline_expired, should no time be left to use the slot.
	ExpiredStatus int
}

// Refused: every accepted tier refused.
type Refused struct {
	Route      string
	Reason     outcome.Shed
	Tier       string // of the first refusal
	Status     int
	RetryAfter time.Duration
}

// ResponseHeaders: the answer's headers arrived.
type ResponseHeaders struct {
	Status      int
	ContentType string
	// FromEnvoy: Envoy wrote the answer itself, with Details as its response code details.
	FromEnvoy bool
	Details   string
	// Degraded: the upstream itself says x-degraded: true; a brownout further in.
	Degraded   bool
	RetryAfter string // as received
	EndOfBody  bool   // there is no body
}

// ResponseTrailers: the answer's trailers arrived; its body ended well.
type ResponseTrailers struct{}

// Body: a body message of a phase that was not asked for.
type Body struct{ Phase Phase }

// Phase is where in the exchange a message belongs.
type Phase uint8

// The phases that carry bodies or request trailers.
const (
	RequestBody Phase = iota
	RequestTrailers
	ResponseBody
)

// Wake: the time NextWake named has come.
type Wake struct{}

// Closed: the exchange is over or torn down; nothing more will be heard.
type Closed struct{}

func (RequestHeaders) event()   {}
func (Unmatched) event()        {}
func (Parked) event()           {}
func (Admitted) event()         {}
func (Refused) event()          {}
func (ResponseHeaders) event()  {}
func (ResponseTrailers) event() {}
func (Body) event()             {}
func (Wake) event()             {}
func (Closed) event()           {}
