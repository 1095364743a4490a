package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// maxReason bounds what is kept of a finish reason, in bytes.
const maxReason = 64

// finish is what a finish reason means. The zero value is no reason.
type finish uint8

const (
	finishNone    finish = iota
	finishDone           // the model said all it had to say
	finishCapped         // a length limit; also every reason nobody knows: it ended, and nobody says well
	finishRefused        // the model or a filter declined
	finishEvicted        // the server threw the job out
	finishFailed         // the server failed
)

// finishes are the reasons of all dialects, in lower case: translators carry one dialect's words into another.
var finishes = map[string]finish{
	"finish_reason_unspecified": finishNone, "null": finishNone, "none": finishNone,

	"stop": finishDone, "tool_calls": finishDone, "tool_call": finishDone, "function_call": finishDone, "end_turn": finishDone,
	"tool_use": finishDone, "stop_sequence": finishDone, "complete": finishDone, "completed": finishDone, "eos_token": finishDone,
	"eos": finishDone, "pause_turn": finishDone, "load": finishDone, "unload": finishDone,

	"length": finishCapped, "max_tokens": finishCapped, "model_length": finishCapped, "max_output_tokens": finishCapped,
	"model_context_window_exceeded": finishCapped,

	"content_filter": finishRefused, "refusal": finishRefused, "safety": finishRefused, "recitation": finishRefused,
	"blocklist": finishRefused, "prohibited_content": finishRefused, "spii": finishRefused, "image_safety": finishRefused,
	"image_prohibited_content": finishRefused, "image_recitation": finishRefused, "language": finishRefused,
	"guardrail_intervened": finishRefused, "content_filtered": finishRefused,

	"abort": finishEvicted, "aborted": finishEvicted, "cancelled": finishEvicted, "canceled": finishEvicted,
	"insufficient_system_resource": finishEvicted,

	"error": finishFailed, "failed": finishFailed, "timeout": finishFailed, "malformed_function_call": finishFailed,
	"unexpected_tool_call": finishFailed, "too_many_tool_calls": finishFailed, "malformed_response": finishFailed,
}

// failures are the stems by which an unknown reason is known to report a failure.
var failures = []struct {
	stem []byte
	is   finish
}{
	{[]byte("abort"), finishEvicted}, {[]byte("cancel"), finishEvicted}, {[]byte("evict"), finishEvicted}, {[]byte("preempt"), finishEvicted},
	{[]byte("error"), finishFailed}, {[]byte("fail"), finishFailed}, {[]byte("timeout"), finishFailed},
}

// reason reads a finish reason. An empty one is none.
func reason(s []byte) finish {
	if len(s) == 0 {
		return finishNone
	}
	if len(s) > maxReason {
		return finishCapped
	}
	var buf [maxReason]byte
	lower := appendLower(buf[:0], s)
	if f, ok := finishes[string(lower)]; ok {
		return f
	}
	for _, f := range failures {
		if bytes.Contains(lower, f.stem) {
			return f.is
		}
	}
	return finishCapped
}

// appendLower appends s with ASCII letters in lower case.
func appendLower(dst, s []byte) []byte {
	for _, c := range s {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// aborted says whether the reason reports that the answer was broken off, whatever its dialect calls it.
func (f finish) aborted() bool { return f >= finishEvicted }

// outcome is the class of an answer that ended so.
func (f finish) outcome() outcome.Outcome {
	switch f {
	case finishDone:
		return outcome.OK
	case finishCapped:
		return outcome.Capped
	case finishRefused:
		return outcome.Refusal
	case finishEvicted:
		return outcome.Evicted
	case finishFailed:
		return outcome.UpstreamError
	}
	return outcome.Unknown
}
