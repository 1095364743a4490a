package dialect

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/jsonedit"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Label is what a degraded answer that is complete says of itself.
type Label struct {
	Tier       string
	Reason     outcome.Degraded
	DeadlineMs int64 // the caller's budget, in milliseconds; only whole documents name it
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// appendKeys appends the members of our contract, without braces.
func (l Label) appendKeys(dst []byte) []byte {
	dst = jsonedit.AppendQuoted(append(dst, `"tier":`...), l.Tier)
	dst = append(append(dst, `,"degraded":true,"reason":"`...), l.Reason.String()...)
	return append(dst, `","complete":true`...)
}

// closeKeys appends the members behind others and closes the object.
func (l Label) closeKeys(dst []byte, end string) []byte {
	return append(append(l.appendKeys(append(dst, ',')), '}'), end...)
}

// appendBare appends the frame of an event stream of unknown dialect.
func (l Label) appendBare(dst []byte) []byte {
	return append(l.appendKeys(append(dst, "event: done\ndata: {"...)), "}\n\n"...)
}

// members are the keys as members of an object that has others.
func (l Label) members() []jsonedit.Member {
	return []jsonedit.Member{
		{Key: "tier", Value: jsonedit.AppendQuoted(nil, l.Tier)},
		{Key: "degraded", Value: []byte("true")},
		{Key: "reason", Value: []byte(`"` + l.Reason.String() + `"`)},
		{Key: "complete", Value: []byte("true")},
	}
}

// AppendMeta appends the value of the member meta, with which a whole document says the same.
func (l Label) AppendMeta(dst []byte) []byte {
	dst = jsonedit.AppendQuoted(append(dst, `{"tier":`...), l.Tier)
	dst = append(append(dst, `,"degraded":true,"reason":"`...), l.Reason.String()...)
	dst = strconv.AppendInt(append(dst, `","deadline_ms":`...), l.DeadlineMs, 10)
	return append(dst, `,"complete":true}`...)
}

// LabelJSON appends a whole document with the member meta. One that has a meta of its own, is no object, or cannot be
// changed for sure is appended as it is: then the headers alone tell.
func LabelJSON(dst, doc []byte, l Label) []byte {
	out, err := jsonedit.InsertMember(dst, doc, "meta", l.AppendMeta(nil))
	if err != nil {
		return append(dst, doc...)
	}
	return out
}

// labelEvent appends an event as one named done, with the keys in its data and its other lines kept. False: the data
// takes no keys, and nothing was appended. present: because it has one of them already.
func labelEvent(dst, unit []byte, l Label) (out []byte, ok, present bool) {
	f, _ := frame.Event{Block: unit}.Parse(true, nil)
	data, err := jsonedit.InsertMembers(nil, oneLine(f.Data), l.members()...)
	if err != nil {
		return dst, false, errors.Is(err, jsonedit.ErrPresent)
	}
	dst = appendOtherLines(dst, unit)
	dst = append(append(dst, "event: done\ndata: "...), data...)
	return append(dst, "\n\n"...), true, false
}

// appendOtherLines appends the lines of an event that neither name it nor carry its data.
func appendOtherLines(dst, unit []byte) []byte {
	unit = bytes.TrimPrefix(unit, byteOrderMark)
	for line := range bytes.FieldsFuncSeq(unit, func(r rune) bool { return r == '\r' || r == '\n' }) {
		name, _, _ := bytes.Cut(line, []byte{':'})
		if s := string(name); s != "event" && s != "data" {
			dst = append(append(dst, line...), '\n')
		}
	}
	return dst
}
