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

// Reply is an answer that brownout writes itself. Its body depends on the caller's dialect and is added by who knows it.
type Reply struct {
	Status  int
	Source  Source
	Headers []Header
	Body    []byte
	Reason  string // of a refusal that is the caller's to mend: the word its body gives, for the log
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
	}
	if !reason.Retryable() {
		r.Headers = append(r.Headers, Header{HeaderShouldRetry, "false"})
	}
	return r.labelled()
}

// DeadlineReply ends a request whose deadline passed after the upstream was reached and before its headers came.
func DeadlineReply() Reply {
	r := Reply{
		Status:  504,
		Source:  SourceDeadline,
		Headers: []Header{{HeaderShouldRetry, "false"}},
	}
	return r.labelled()
}

// CutReply stands for an answer of the upstream that was cut before anything of it had gone on.
func CutReply() Reply { return Reply{Status: 502, Source: SourceUpstream}.labelled() }

// ErrorReply stands for an answer of the upstream that began with an error inside a 200: the error, with the status it
// should have had.
func ErrorReply(o Outcome) Reply {
	r := Reply{Status: errorStatus(o), Source: SourceUpstream}
	if o == Quota {
		r.Headers = append(r.Headers, Header{HeaderShouldRetry, "false"})
	}
	return r.labelled()
}

func errorStatus(o Outcome) int {
	switch o {
	case Throttled, Quota:
		return 429
	case Overloaded, Evicted:
		return 503
	case BadRequest:
		return 400
	}
	return 502
}

// Names of the headers of a replay.
const (
	HeaderReplayed = "idempotent-replayed"
	HeaderAge      = "age"
)

// ReplayReply gives a kept answer of tier again, after age. why is the reason it stands in for a better one; none: it is
// as good. The kept headers and the body are added by who has them.
func ReplayReply(status int, tier string, why Degraded, age time.Duration) Reply {
	r := Reply{Status: status, Source: SourceReplay, Headers: []Header{
		{HeaderReplayed, "true"},
		{HeaderAge, strconv.FormatInt(int64(max(age, 0)/time.Second), 10)},
	}}
	return r.from(tier, why)
}

// TemplateReply answers with a fixed text in the place of better tiers. The body is added by who knows the dialect.
func TemplateReply(tier string, why Degraded, contentType string) Reply {
	r := Reply{Status: 200, Source: SourceTemplate, Headers: []Header{{"content-type", contentType}}}
	return r.from(tier, why)
}

// RefusalReply refuses what is the caller's to mend: 400, 409 or 422. Only the 409 is worth a repeat.
func RefusalReply(status int) Reply {
	r := Reply{Status: status, Source: SourceReplay}
	if status != 409 {
		r.Headers = append(r.Headers, Header{HeaderShouldRetry, "false"})
	}
	return r.labelled()
}

// Marked adds who wrote the answer to one of the upstream's that is given once more.
func (r Reply) Marked() Reply {
	r.Headers = append(r.Headers, Header{HeaderDegraded, "false"}, Header{HeaderSource, r.Source.String()})
	return r
}

// from adds the headers of an answer of tier.
func (r Reply) from(tier string, why Degraded) Reply {
	degraded := "false"
	if why != DegradedNone {
		degraded = "true"
		r.Headers = append(r.Headers, Header{HeaderDegradedReason, why.String()})
	}
	r.Headers = append(r.Headers, Header{HeaderTier, tier}, Header{HeaderDegraded, degraded}, Header{HeaderSource, r.Source.String()})
	return r
}

// labelled adds the headers every answer of ours carries: no tier answered, so none is named.
func (r Reply) labelled() Reply {
	r.Headers = append(r.Headers,
		Header{"content-type", "application/json"},
		Header{HeaderDegraded, "false"},
		Header{HeaderSource, r.Source.String()})
	return r
}
