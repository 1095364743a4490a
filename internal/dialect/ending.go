package dialect

import (
	"github.com/envoy-brownout/brownout/internal/jsonedit"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

const doneFrame = "data: [DONE]\n\n"

// appendKeys appends the members of our contract, without braces.
func appendKeys(dst []byte, e Ending) []byte {
	dst = append(dst, `"tier":`...)
	dst = jsonedit.AppendQuoted(dst, e.Tier)
	dst = append(dst, `,"degraded":true,"reason":"`...)
	dst = append(dst, e.Reason.String()...)
	return append(dst, `","complete":false`...)
}

// closeKeys appends the members behind others and closes the object.
func closeKeys(dst []byte, e Ending, end string) []byte {
	dst = appendKeys(append(dst, ','), e)
	return append(append(dst, '}'), end...)
}

// appendBare appends the frame of an event stream of unknown dialect.
func appendBare(dst []byte, e Ending) []byte {
	dst = append(dst, "event: done\ndata: {"...)
	dst = appendKeys(dst, e)
	return append(dst, "}\n\n"...)
}

// message says in words why the answer ends. It needs no escapes.
func (e Ending) message() string {
	if e.Reason == outcome.DegradedDeadline {
		return "deadline exceeded"
	}
	return "answer incomplete: " + e.Reason.String()
}

// late says whether time ended the answer, rather than the upstream.
func (e Ending) late() bool {
	return e.Reason == outcome.DegradedDeadline || e.Reason == outcome.DegradedSlowFirstToken || e.Reason == outcome.DegradedStalled
}
