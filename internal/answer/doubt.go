package answer

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/frame"
)

// doubt is what is known of a body that may be a document or lines.
type doubt struct {
	open   bool // nothing has told yet
	behind int  // of what is collected, where to look for more behind a first line that is no proof; 0: there is none yet
}

const space = " \t\r\n"

// areLines says whether what is collected is lines: the first of them is one of the dialect, or it is a document by
// itself and more follows. p came last. A first line that is no document begins one.
func (a *Answer) areLines(p []byte) bool {
	d := &a.doubt
	if d.behind == 0 {
		if bytes.IndexByte(p, '\n') < 0 {
			return false
		}
		body := bytes.TrimLeft(a.json, space)
		end := bytes.IndexByte(body, '\n')
		if end < 0 {
			return false
		}
		line := body[:end]
		if !gjson.ValidBytes(line) {
			d.open = false
			return false
		}
		if !a.tell(line).Foreign {
			return true
		}
		d.behind = len(a.json) - len(body) + end
	}
	rest := bytes.TrimLeft(a.json[d.behind:], space)
	d.behind = len(a.json) - len(rest)
	return len(rest) > 0
}

// unfinishedLine says whether what is collected at the end of the body is a line of the dialect that is not its last.
func (a *Answer) unfinishedLine() bool {
	doc := bytes.Trim(a.json, space)
	if len(doc) == 0 || bytes.IndexByte(doc, '\n') >= 0 || !gjson.ValidBytes(doc) {
		return false
	}
	st := a.tell(doc)
	return !st.Foreign && !st.Complete && !st.Error
}

// tell is what the dialect makes of a first line.
func (a *Answer) tell(line []byte) dialect.State {
	s := dialect.New(a.o.Dialect, dialect.Options{})
	s.Observe(frame.Fields{}, line)
	return s.State()
}

// asLines is what is collected, as the beginning of a stream.
func (a *Answer) asLines() []byte {
	held := a.json
	a.o.Kind, a.doubt.open, a.json = Stream, false, nil
	a.open()
	return held
}
