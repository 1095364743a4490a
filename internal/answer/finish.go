package answer

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/frame"
)

// finishStream is what to make of the end of a stream. Of an unfinished unit, a whole one that only lacks its blank line
// is kept; of a complete answer everything is kept, and half a unit is dropped. The unit is completed where it was cut,
// where something of ours follows, and where readers would drop it as it is: an event without its blank line that is no
// sentinel (WHATWG HTML §9.2.6).
func (a *Answer) finishStream(clean bool) (rest []byte, complete bool) {
	tail := bytes.Clone(a.split.Tail())
	if end := a.missingEnd(tail); end != "" {
		rest, tail = a.lastUnit(tail, end), nil
	}
	if !clean || a.ends.dropped { // the upstream would have sent it
		owed := a.ends.pay()
		a.kept.add([]byte(owed))
		rest = append(rest, owed...)
	}
	st := a.stream.State()
	complete = a.Over() || (clean && st.Complete)
	if complete && isAnswer(st) && a.wantsLabel() && !a.split.Unframed() {
		rest = a.appendLabel(rest, nil) // in front of what may be half a unit
	}
	if complete && st.Complete {
		a.kept.add(tail)
		rest = append(rest, tail...)
	}
	return rest, complete
}

// lastUnit takes tail for the unit that end makes it. It goes on as it is: end is only owed to what may follow.
func (a *Answer) lastUnit(tail []byte, end string) (rest []byte) {
	a.split.Feed([]byte(end), func(e frame.Event) bool {
		m := a.observe(e)
		if m&dialect.Withhold != 0 {
			rest = a.stream.AppendHonest(rest, e.Block)
			return true
		}
		a.kept.add(tail)
		if m&dialect.Last != 0 && a.wantsLabel() {
			rest = a.appendLabel(rest, tail)
			return true
		}
		rest, a.ends.owed = append(rest, tail...), end
		a.ends.dropped = a.split.Kind == frame.SSE && m&dialect.Data != 0 && m&dialect.Sentinel == 0
		return true
	})
	return rest
}

// missingEnd is what makes tail a whole unit: line ends, if its last line is a whole data line. Empty: it is broken, or
// may be: a number whose line has not ended may be half of one.
func (a *Answer) missingEnd(tail []byte) string {
	if len(tail) == 0 || a.split.Unframed() {
		return ""
	}
	last := tail[len(tail)-1]
	ended := last == '\n' || last == '\r'
	if a.split.Kind == frame.NDJSON {
		if isWhole(bytes.TrimSpace(tail), ended) {
			return "\n"
		}
		return ""
	}
	f, _ := frame.Event{Block: tail}.Parse(a.units == 0, nil)
	data := bytes.TrimSpace(f.Data)
	if f.Bare != nil {
		data = bytes.TrimSpace(tail)
	}
	if string(data) != "[DONE]" && !isWhole(data, ended) {
		return ""
	}
	a.ends.note(tail)
	line := a.ends.line(a.stream.ID())
	switch {
	case last == '\n':
		return line
	case last == '\r': // an LF makes it a CRLF
		return "\n" + line
	}
	return line + line
}

// isWhole says whether data is a whole JSON value; ended, that its line is at an end.
func isWhole(data []byte, ended bool) bool {
	if len(data) == 0 || !gjson.ValidBytes(data) {
		return false
	}
	number := data[0] == '-' || '0' <= data[0] && data[0] <= '9'
	return ended || !number
}
