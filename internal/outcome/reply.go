package outcome

import (
	"math"
	"strconv"
	"time"
)

// Names of the headers brownout sets. Callers read them; whatever a caller or an upstream sends under these names
// is removed or overwritten.
const (
	HeaderTier           = "x-tier"
	HeaderDegraded       = "x-degraded"
	HeaderDegradedReason = "x-degraded-reason"
	HeaderSource         = "x-brownout-source"
	HeaderRetryAfter     = "retry-after"
	HeaderRetryAfterMs   = "retry-after-ms"
	HeaderShouldRetry    = "x-should-retry"
)

// Bounds of the retry-after we send, in seconds. SDKs sleep through larger values or refuse to retry.
const (
	minRetryAfter = 1
	MaxRetryAfter = 60
)

// Header is one header field; names are lower case.
type Header struct{ Name, Value string }

// Reply is an answer that brownout writes itself.
type Reply struct {
	Status  int
	Source  Source
	Headers []Header
	Body    []byte
}

// ShedReply refuses a request. status is 503, or 429 where the policy maps the reason to it. retryAfter is the
// forecast until a repeat could succeed, sent in milliseconds and, rounded up, in seconds (RFC 9110 §10.2.3).
func ShedReply(reason Shed, status int, retryAfter time.Duration) Reply {
	ms := max(retryAfter.Milliseconds(), 1)
	secs := min(max(int64(math.Ceil(float64(ms)/1000)), minRetryAfter), MaxRetryAfter)
	ms = min(ms, MaxRetryAfter*1000)
	r := Reply{
		Status: status,
		Source: SourceShed,
		Headers: []Header{
			{HeaderRetryAfterMs, strconv.FormatInt(ms, 10)},
			{HeaderRetryAfter, strconv.FormatInt(secs, 10)},
		},
		Body: plainBody("capacity", reason.String()),
	}
	if !reason.Retryable() {
		r.Headers = append(r.Headers, Header{HeaderShouldRetry, "false"})
	}
	return r.labelled()
}

// DeadlineReply ends a request whose deadline passed after the upstream was reached and before its headers came.
// reason is DegradedDeadline or DegradedSlowFirstToken.
func DeadlineReply(reason Degraded) Reply {
	r := Reply{
		Status:  504,
		Source:  SourceDeadline,
		Headers: []Header{{HeaderShouldRetry, "false"}},
		Body:    plainBody("deadline", reason.String()),
	}
	return r.labelled()
}

// labelled adds the headers every answer of ours carries: no tier answered, so none is named.
func (r Reply) labelled() Reply {
	r.Headers = append(r.Headers,
		Header{"content-type", "application/json"},
		Header{HeaderDegraded, "false"},
		Header{HeaderSource, r.Source.String()})
	return r
}

// plainBody is the body for a dialect we do not know. kind and reason come from closed enums of plain ASCII
// names, so no escaping is needed.
func plainBody(kind, reason string) []byte {
	b := make([]byte, 0, len(kind)+len(reason)+24)
	b = append(b, `{"error":"`...)
	b = append(b, kind...)
	b = append(b, `","reason":"`...)
	b = append(b, reason...)
	return append(b, `"}`...)
}
