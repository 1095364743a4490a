package dialect

import (
	"bytes"
	"strings"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// words are the error codes and types of all upstreams that say more than a status does, in lower case.
var words = map[string]outcome.Outcome{
	"insufficient_quota": outcome.Quota, "credit_balance_exhausted": outcome.Quota, "organization_usage_limit_exceeded": outcome.Quota,
	"billing_error": outcome.Quota, "billing_hard_limit_reached": outcome.Quota, "billing_not_active": outcome.Quota,
	"quota_exceeded": outcome.Quota, "servicequotaexceededexception": outcome.Quota, "insufficient_balance": outcome.Quota,
	"exceeded_current_quota_error": outcome.Quota,

	"rate_limit_exceeded": outcome.Throttled, "rate_limit_error": outcome.Throttled, "rate_limited": outcome.Throttled,
	"too_many_requests": outcome.Throttled, "slow_down": outcome.Throttled, "throttlingexception": outcome.Throttled,
	"toomanyrequestsexception": outcome.Throttled, "resource_exhausted": outcome.Throttled,

	"overloaded_error": outcome.Overloaded, "overloaded": outcome.Overloaded, "server_is_overloaded": outcome.Overloaded,
	"unavailable_error": outcome.Overloaded, "unavailable": outcome.Overloaded, "service_unavailable": outcome.Overloaded,
	"serviceunavailableexception": outcome.Overloaded, "modelnotreadyexception": outcome.Overloaded,
	"engine_overloaded": outcome.Overloaded, "engine_overloaded_error": outcome.Overloaded, "model_overloaded": outcome.Overloaded,

	"abort": outcome.Evicted, "cancelled": outcome.Evicted, "canceled": outcome.Evicted, "evicted": outcome.Evicted,
	"preempted": outcome.Evicted,

	"content_filter": outcome.Refusal, "responsibleaipolicyviolation": outcome.Refusal, "content_policy_violation": outcome.Refusal,

	"invalid_request_error": outcome.BadRequest, "invalid_argument": outcome.BadRequest, "exceed_context_size_error": outcome.BadRequest,
	"context_length_exceeded": outcome.BadRequest, "authentication_error": outcome.BadRequest, "permission_error": outcome.BadRequest,
	"permission_denied": outcome.BadRequest, "unauthenticated": outcome.BadRequest, "not_found_error": outcome.BadRequest,
	"not_found": outcome.BadRequest, "request_too_large": outcome.BadRequest, "failed_precondition": outcome.BadRequest,
	"out_of_range": outcome.BadRequest, "validation": outcome.BadRequest, "validationexception": outcome.BadRequest,
	"accessdeniedexception": outcome.BadRequest, "resourcenotfoundexception": outcome.BadRequest, "badrequesterror": outcome.BadRequest,
	"notfounderror": outcome.BadRequest, "model_not_found": outcome.BadRequest,

	"api_error": outcome.UpstreamError, "server_error": outcome.UpstreamError, "internal_error": outcome.UpstreamError,
	"internal": outcome.UpstreamError, "internalservererror": outcome.UpstreamError, "generation": outcome.UpstreamError,
	"incomplete_generation": outcome.UpstreamError, "timeout_error": outcome.UpstreamError, "deadline_exceeded": outcome.UpstreamError,
	"modelerrorexception": outcome.UpstreamError, "modeltimeoutexception": outcome.UpstreamError,
	"internalserverexception": outcome.UpstreamError,
}

// phrases are what servers write that have no codes, in lower case. firm ones hold against the number beside them.
var phrases = []struct {
	part string
	is   outcome.Outcome
	firm bool
}{
	{"throttlingexception", outcome.Throttled, true}, // Bedrock's, wrapped by a gateway into a 400 or 500
	{"toomanyrequestsexception", outcome.Throttled, true},
	{"credit balance is too low", outcome.Quota, true}, // Anthropic: 400 invalid_request_error
	{"spend limit", outcome.Quota, true},
	{"queue is full", outcome.Overloaded, false},
	{"overloaded", outcome.Overloaded, false},
	{"server busy", outcome.Overloaded, false},
	{"rate limit", outcome.Throttled, false},
	{"too many requests", outcome.Throttled, false},
}

// wordOutcome is what one code or type means, Unknown if nothing. A name space in front ("com.amazon…#") and a
// documentation address behind (":http…") are no part of it.
func wordOutcome(w string) outcome.Outcome {
	w = strings.ToLower(w[strings.LastIndexByte(w, '#')+1:])
	w, _, _ = strings.Cut(w, ":")
	if strings.HasSuffix(w, "_spend_limit_exceeded") {
		return outcome.Quota
	}
	return words[w]
}

// ByErrorType is what an error type means that a header carries, such as Bedrock's x-amzn-errortype; false if nothing.
func ByErrorType(value string) (outcome.Outcome, bool) {
	o := wordOutcome(strings.TrimSpace(value))
	return o, o != outcome.Unknown
}

// DroppedTTL is the reason for which a repeat is pointless: the request has outlived its own time in a queue.
const DroppedTTL = "rejected-ttl-expired"

// ByDroppedReason is what the header x-llm-d-request-dropped-reason says (llm-d and Gateway API inference extension).
// False: nothing we know, judge by the status.
func ByDroppedReason(value string) (outcome.Outcome, bool) {
	value = strings.ToLower(strings.TrimSpace(value))
	switch {
	case value == "rejected-context-cancelled":
		return outcome.ClientAborted, true
	case strings.HasPrefix(value, "rejected-"):
		return outcome.Overloaded, true
	case strings.HasPrefix(value, "evicted"):
		return outcome.Evicted, true
	}
	return outcome.Unknown, false
}

// maxMessage bounds how much of an error message is searched, in bytes.
const maxMessage = 4 << 10

// fault is what an error of an upstream says about itself.
type fault struct {
	word    outcome.Outcome // the strongest of its codes and types
	code    int             // a status, or 0
	message string          // lower case, bounded
	daily   bool            // a quota that time heals only tomorrow
}

// isFault says whether a document is an error rather than an answer.
func isFault(doc text) bool {
	if doc.get("error").set() || doc.get("object").is("error") || doc.get("type").is("error") || doc.get("__type").quoted() {
		return true
	}
	var f fault
	f.read(doc)
	return f.code >= 400 && f.message != ""
}

// readFault gathers what a document says about an error, at the top and in its error member.
func readFault(doc text) fault {
	var f fault
	f.read(doc)
	inner := doc.get("error")
	switch {
	case inner.object():
		f.read(inner)
		f.read(inner.get("innererror")) // Azure
	case inner.quoted():
		f.take("error", inner)
		f.take("message", inner)
	}
	lower := appendLower(nil, doc[:min(len(doc), maxMessage)])
	f.daily = bytes.Contains(lower, []byte("perday")) || bytes.Contains(lower, []byte("per day"))
	return f
}

func (f *fault) read(t text) {
	for m := t.members(); m.next(); {
		f.take(string(m.key), m.value)
	}
}

// take looks at one member.
func (f *fault) take(key string, v text) {
	switch key {
	case "code", "status", "status_code":
		if n, ok := v.number(); ok {
			if 400 <= n && n < 600 {
				f.code = n
			}
			return
		}
		fallthrough
	case "type", "error", "error_type", "__type":
		if len(v) <= maxReason {
			f.word = outcome.First(f.word, wordOutcome(v.decoded()))
		}
	case "message", "detail", "title":
		if len(v) <= maxMessage {
			f.message += string(appendLower(nil, v.inner()))
		}
	}
}

// outcome is the class of the error, as the answer to a request or, with status below 400, inside an answer. Words that
// speak of capacity hold against any number; other words hold where no number speaks of it.
func (f fault) outcome(status int) outcome.Outcome {
	phrase, firm := f.phrase()
	code := f.code
	if code == 0 && status >= 400 {
		code = status
	}
	capacity := byCode(code)
	switch {
	case f.word == outcome.Quota, code == 402, firm && phrase == outcome.Quota:
		return outcome.Quota
	case f.word == outcome.Throttled && f.daily:
		return outcome.Quota
	case f.word == outcome.Evicted, f.word == outcome.Throttled, f.word == outcome.Overloaded, f.word == outcome.Refusal:
		return f.word
	case firm:
		return phrase
	case capacity != outcome.Unknown:
		return capacity
	case f.word != outcome.Unknown:
		return f.word
	case phrase != outcome.Unknown && code < 400:
		return phrase
	}
	if code >= 400 {
		return outcome.ByStatus(code, false, "")
	}
	return outcome.UpstreamError
}

// byCode is what a status says about capacity, Unknown if nothing. Azure sheds with 408.
func byCode(code int) outcome.Outcome {
	switch code {
	case 429:
		return outcome.Throttled
	case 408, 503, 529:
		return outcome.Overloaded
	}
	return outcome.Unknown
}

func (f fault) phrase() (o outcome.Outcome, firm bool) {
	for _, p := range phrases {
		if strings.Contains(f.message, p.part) {
			return p.is, p.firm
		}
	}
	return outcome.Unknown, false
}
