package session

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/answer"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// plantedInAnswers are names of ours that mean something between brownout and Envoy; an upstream has no use for them.
var plantedInAnswers = []string{"x-brownout-seal", "x-brownout-inner", "x-brownout-id", "x-brownout-cut"}

// bodyDigests are headers that speak of exact bytes; an ending of ours would make them false.
var bodyDigests = []string{"content-length", "content-md5", "digest", "content-digest", "etag"}

// label is the honest mark on an answer of somebody else: which tier gave it, whether it is less than was asked for,
// and who wrote it. Ours overwrite what the upstream may have sent under the same names, except that an upstream
// that calls its own answer degraded is believed.
func (s *Session) label(now time.Time, ev ResponseHeaders) ContinueAnswer {
	c := ContinueAnswer{Remove: slices.Clone(plantedInAnswers)}
	set := func(name, value string) { c.Set = append(c.Set, outcome.Header{Name: name, Value: value}) }
	set(outcome.HeaderSource, s.fin.Source.String())
	switch {
	case ev.FromEnvoy:
		c.Remove = append(c.Remove, outcome.HeaderTier, outcome.HeaderDegradedReason)
		set(outcome.HeaderDegraded, "false")
	case s.fin.Ran != outcome.DegradedNone:
		set(outcome.HeaderTier, s.fin.Tier)
		set(outcome.HeaderDegraded, "true")
		set(outcome.HeaderDegradedReason, s.fin.Ran.String())
	case ev.Degraded:
		set(outcome.HeaderTier, s.fin.Tier)
		set(outcome.HeaderDegraded, "true")
	default:
		set(outcome.HeaderTier, s.fin.Tier)
		set(outcome.HeaderDegraded, "false")
		c.Remove = append(c.Remove, outcome.HeaderDegradedReason)
	}
	if isStream(ev.ContentType) {
		set("x-accel-buffering", "no")
		if s.watch != nil && !s.watch.Pass {
			c.Remove = append(c.Remove, bodyDigests...)
		}
	} else if s.body != nil && (s.bodyLabel() != nil || s.body.Kind() == answer.Stream) { // meta goes into the body, or an ending behind it
		c.Remove = append(c.Remove, bodyDigests...)
	}
	if s.verdict == outcome.Quota || (ev.NoRetry && ev.Status >= 400) {
		c.Remove = append(c.Remove, outcome.HeaderRetryAfter, outcome.HeaderRetryAfterMs)
		set(outcome.HeaderShouldRetry, "false")
	}
	if ev.Status == 429 || ev.Status >= 500 {
		if tooLong(now, ev.RetryAfter) || tooManyMillis(ev.RetryAfterMs) {
			c.Remove = append(c.Remove, outcome.HeaderRetryAfter, outcome.HeaderRetryAfterMs)
			set(outcome.HeaderShouldRetry, "false")
		}
	}
	return c
}

// tooManyMillis is tooLong for retry-after-ms, which OpenAI's SDKs read first.
func tooManyMillis(v string) bool {
	ms, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	return err == nil && ms > outcome.MaxRetryAfter*1000
}

// tooLong says whether a Retry-After (RFC 9110 §10.2.3: seconds or a date) asks for more than SDKs should sleep.
// A value that is neither is left alone: SDKs fall back to their own backoff.
func tooLong(now time.Time, v string) bool {
	v = strings.TrimSpace(v)
	if secs, err := strconv.ParseFloat(v, 64); err == nil {
		return secs > outcome.MaxRetryAfter
	}
	if t, err := http.ParseTime(v); err == nil {
		return t.Sub(now) > outcome.MaxRetryAfter*time.Second
	}
	return false
}
