package answer

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/dialect"
)

// ends are the line ends of a stream, as far as they matter to what of ours follows.
type ends struct {
	crlf bool   // its lines end so
	half bool   // the last byte is a CR, whose LF is still to come
	owed string // what the last unit lacks, should anything follow
	// dropped: readers drop the last unit if nothing follows.
	dropped bool
}

// note takes the end of what goes on.
func (e *ends) note(unit []byte) {
	n := len(unit)
	if n == 0 {
		return
	}
	e.half = unit[n-1] == '\r'
	e.crlf = e.crlf || bytes.Contains(unit[max(n-4, 0):], []byte("\r\n"))
}

// line is how a line of ours ends.
func (e *ends) line(id dialect.ID) string {
	if e.crlf && id.KeepsLineEnds() {
		return "\r\n"
	}
	return "\n"
}

// pay is what is owed, once.
func (e *ends) pay() string {
	owed := e.owed
	if owed != "" {
		e.owed, e.half = "", false
	}
	return owed
}

// lead is a frame of ours as it stands behind what has gone on: what that lacks, and the frame with its line ends. No
// frame stays none.
func (e *ends) lead(id dialect.ID, frame []byte) []byte {
	if len(frame) == 0 {
		return nil
	}
	lead, line := e.pay(), e.line(id)
	if line != "\n" {
		frame = bytes.ReplaceAll(frame, []byte{'\n'}, []byte(line))
		if e.half {
			lead = "\n"
		}
	}
	e.half = false
	return append([]byte(lead), frame...)
}
