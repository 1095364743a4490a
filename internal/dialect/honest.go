package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/frame"
)

// cutter copies a document but for some of its values.
type cutter struct {
	doc, dst []byte
	from     int // how much of doc is done with
}

// put writes with in the place of v, a value that lies in the document behind those put before.
func (c *cutter) put(v text, with string) {
	at := cap(c.doc) - cap(v) // v is a slice of doc
	c.dst = append(append(c.dst, c.doc[c.from:at]...), with...)
	c.from = at + len(v)
}

// rest is the copy with what is left of the document.
func (c *cutter) rest() []byte { return append(c.dst, c.doc[c.from:]...) }

// AppendHonest appends a chunk that brings words, or the finish of another choice, beside an abort, with no finish reason
// in the place of that abort.
func (o *openAI) AppendHonest(dst, unit []byte) []byte {
	f, _ := frame.Event{Block: unit}.Parse(true, nil)
	doc, ok := parse(oneLine(f.Data))
	if !ok || !o.worth {
		return dst
	}
	c := cutter{doc: doc, dst: append(appendOtherLines(dst, unit), "data: "...)}
	for e := doc.get("choices").elements(); e.nextElement(); {
		if v := e.value.get("finish_reason"); isAbort(v) {
			c.put(v, "null")
		}
	}
	return append(c.rest(), "\n\n"...)
}

// isAbort says whether a finish reason, a word or an object, reports an abort.
func isAbort(v text) bool {
	if v.object() {
		v = v.get("type")
	}
	return reason(v.inner()).aborted()
}

// AppendHonest appends a done line that brings words as one that is not the last.
func (o *ollama) AppendHonest(dst, unit []byte) []byte {
	doc, ok := parse(unit)
	if !ok || !o.spoke {
		return dst
	}
	done, why := doc.get("done"), doc.get("done_reason")
	c := cutter{doc: doc, dst: dst}
	if cap(why) > cap(done) { // it comes first
		c.put(why, "null")
		why = nil
	}
	c.put(done, "false")
	if why != nil {
		c.put(why, "null")
	}
	return append(c.rest(), '\n')
}

// oneLine is data with its line ends, which are never inside a string, as blanks.
func oneLine(data []byte) []byte {
	data = bytes.Clone(data)
	for i, c := range data {
		if c == '\n' || c == '\r' {
			data[i] = ' '
		}
	}
	return data
}
