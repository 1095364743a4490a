package session

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Effect is something the driver is to do. The set is closed; effects are performed in order.
type Effect interface{ effect() }

// Offer: ask the engine.
type Offer struct{}

// AskBody: let the request's headers wait in Envoy and have its body sent. The answer's body will come as a stream.
type AskBody struct{}

// OfferBody: ask the engine, now with the body.
type OfferBody struct{ Data []byte }

// Fallback: ask the engine what stands in for an answer that failed for Why. The event Fallen must come next, ahead of
// whatever else has arrived.
type Fallback struct{ Why outcome.Degraded }

// Abandon: leave the queue.
type Abandon struct{}

// ReleaseSlot: give back a slot that was granted too late.
type ReleaseSlot struct{}

// ExtendTimeout: tell Envoy to wait longer for the reply to the request headers. At most once per request: Envoy
// ignores a second (Envoy: ProcessingResponse.override_message_timeout).
type ExtendTimeout struct{ For time.Duration }

// PassThrough: let the request go on untouched, and look at nothing that follows.
type PassThrough struct{}

// Continue: let the request go upstream.
type Continue struct {
	Tier            string
	RemainingMillis int64
	CoversWhole     bool
	Watched         bool // ask for the answer's body
	Sealed          bool // send it over the seal
	Retry           bool // Envoy may repeat it
	Rewritten       bool // so that Envoy could no longer tell its route by the path
	Route           string
	Path            string
	Headers         []outcome.Header
	Body            []byte // replaces the request's; nil: as it is
}

// ContinueAnswer: let the answer's headers go on, with Set overwritten and Remove removed.
type ContinueAnswer struct {
	Set    []outcome.Header
	Remove []string
}

// ContinueTrailers: let the answer's trailers go on, without those of the seal.
type ContinueTrailers struct{}

// ContinueBody: let a body message go on that was not asked for.
type ContinueBody struct{ Phase Phase }

// SendBody: send a piece of the answer's body to the caller. With End the answer is over, and if the upstream is not, Envoy
// cancels it. Data is not empty where End is ours: Envoy takes no end without bytes.
type SendBody struct {
	Data []byte
	End  bool
}

// Reset: break the answer off, because it cannot be ended honestly.
type Reset struct{}

// CancelUpstream: end the upstream's work through the seal, whether or not the caller still reads.
type CancelUpstream struct{}

// FinishUpstream: let the seal end an answer that is complete but stays open.
type FinishUpstream struct{}

// Reply: answer in the upstream's place; Envoy cancels what runs upstream.
type Reply struct{ outcome.Reply }

// Finish: the exchange is decided. Free the slot, count, log. Exactly once per request.
type Finish struct {
	Route   string
	Outcome outcome.Outcome
	Source  outcome.Source
	Status  int              // sent to the caller, 0 when nothing was
	Tier    string           // that ran the request, "" when none did
	Ran     outcome.Degraded // why a lower tier ran it, none: the first did
	// Degraded is the reason sent with the answer, if any.
	Degraded outcome.Degraded
	Shed     outcome.Shed
	ShedTier string
	// AdmittedAt and ContentAt are when the slot was taken and when the answer's first content came; zero: never, or not
	// looked for.
	AdmittedAt, ContentAt time.Time
	Dialect               dialect.ID
	Details               string // Envoy's, of an answer it wrote itself
	// Terminal is the reason of the ending of ours, if the caller got one.
	Terminal outcome.Degraded
	// Cut: the upstream died in its answer. CutSealed: the seal told; otherwise it is what it looks like from here.
	Cut, CutSealed bool
	Usage          dialect.Usage
	Reason         string // the upstream's last finish reason
	Bytes          int64  // of the answer's body, that went on

	// The answer of the upstream, for those who follow and for the store: Kept is all of its body, if Whole.
	Kept     []byte
	Whole    bool
	Headers  []outcome.Header
	Upstream int  // its status, 0 when it gave none
	Inner    bool // it says of itself that it is degraded
	// Label is what was set on it for the caller, and Author who wrote it; they stay where something stands in for it.
	Label    []outcome.Header
	Author   outcome.Source
	Attempts int // of Envoy at the upstream
	// Failed is what was wrong with the upstream's answer before anything of it went on, and Replied the error in its place
	// that the caller got, if nothing better stood in.
	Failed  outcome.Degraded
	Replied *outcome.Reply
	// AnsweredBy is the tier whose answer stood in for the upstream's, "" when none did.
	AnsweredBy string
}

// ProtocolError: an event that cannot happen in this state. The stream goes on; somebody should look.
type ProtocolError struct{ What string }

func (Offer) effect()            {}
func (AskBody) effect()          {}
func (OfferBody) effect()        {}
func (Fallback) effect()         {}
func (Abandon) effect()          {}
func (ReleaseSlot) effect()      {}
func (ExtendTimeout) effect()    {}
func (PassThrough) effect()      {}
func (Continue) effect()         {}
func (ContinueAnswer) effect()   {}
func (ContinueTrailers) effect() {}
func (ContinueBody) effect()     {}
func (SendBody) effect()         {}
func (Reset) effect()            {}
func (CancelUpstream) effect()   {}
func (FinishUpstream) effect()   {}
func (Reply) effect()            {}
func (Finish) effect()           {}
func (ProtocolError) effect()    {}
