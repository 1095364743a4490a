package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// ClassDefault is the class of requests without a known priority value.
const ClassDefault = "default"

// Kind is what the engine decided.
type Kind uint8

// The kinds of verdict.
const (
	Unmatched Kind = iota // no route: the request passes untouched
	Admitted              // Ticket is set and owned by the receiver
	NeedBody              // call Admission.Body
	Looking               // another verdict follows at once: the store is asked
	Parked                // another verdict follows
	Answered              // Reply is the answer: nothing goes upstream
	Shed                  // refused by every accepted tier
)

// Verdict is the engine's answer to one request.
type Verdict struct {
	Kind     Kind
	Route    string
	Class    string // name of the priority value, or ClassDefault
	Deadline deadline.Deadline
	// GiveUp is when a parked request stops waiting at the latest.
	GiveUp time.Time
	// HoldUntil is how long a parked request may be held in all, by its deadline and by Envoy; not before GiveUp.
	HoldUntil time.Time
	// WakeAt is when the engine wants its Tick for a parked request, not after GiveUp.
	WakeAt time.Time

	Tier   string           // of an Admitted or Answered: who answers, "" for an error
	Stream policy.Stream    // of an Admitted: how the answer is watched
	Reason outcome.Degraded // of an Admitted below the first tier, or of an Answered: why
	Ticket *limit.Ticket    // of an Admitted

	// Of an Admitted:
	Rewrite      Rewrite
	Retry        bool // Envoy may repeat it should it break before the answer's headers
	Fallback     bool // Admission.Fallback may have an answer should the upstream's fail
	ReplaceEmpty bool // …or hold nothing
	Keep         int  // bytes of the answer to keep for Ended.Body; 0: none

	// Of an Answered:
	Reply   outcome.Reply
	Outcome outcome.Outcome

	Shed     outcome.Shed // of a Shed: the first refusal's reason, or shutting_down if a later one said so
	ShedTier string       // of a Shed: the tier that gave this reason, "" when none was asked
	// ShedStatus is the HTTP status of a Shed; of an Admitted, that of a deadline_expired, should the slot have come too
	// late to use.
	ShedStatus int
	RetryAfter time.Duration // of a Shed: when a repeat makes sense

	Pinned *dialect.ID // the dialect the policy says, nil: the path tells it
	// Waits are the times spent in queues, in order; one entry per tier that admitted or gave up.
	Waits []Wait
	// Ignored names request headers whose value was of no use.
	Ignored []string
}

// Rewrite is what is changed of a request so that it reaches a tier's model. Zero fields change nothing.
type Rewrite struct {
	Named   bool // the path or the model may change, so Envoy is told the route by name
	Path    string
	Headers []outcome.Header
	Body    []byte
}

// Wait is time spent in one tier's queue; zero for a slot at once.
type Wait struct {
	Tier string
	For  time.Duration
}
