package answer

import (
	"strings"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// wantsLabel says whether the label has still to be said.
func (a *Answer) wantsLabel() bool { return a.o.Label != nil && !a.labelled }

// isAnswer says whether a complete answer is one, and not the report of a failure.
func isAnswer(st dialect.State) bool {
	switch st.Class {
	case outcome.OK, outcome.Capped, outcome.Refusal, outcome.Empty:
		return true
	}
	return false
}

// appendLabel appends a unit with the label; nil: the label alone.
func (a *Answer) appendLabel(dst, unit []byte) []byte {
	a.labelled = true
	if unit != nil {
		return a.stream.AppendLabel(dst, unit, *a.o.Label)
	}
	return append(dst, a.ends.lead(a.stream.ID(), a.stream.AppendLabel(nil, nil, *a.o.Label))...)
}

// LabelEnd is what is still missing of the label where a stream is ended that is complete but still open. It may be
// empty, and is given once.
func (a *Answer) LabelEnd() []byte {
	if a.o.Kind != Stream || !a.wantsLabel() || a.split.Unframed() || !a.Over() || !isAnswer(a.stream.State()) {
		return nil
	}
	return a.appendLabel(nil, nil)
}

// labelDocument is a whole answer with the member meta, if it is to be labelled. An error in the place of an answer is
// none.
func (a *Answer) labelDocument(doc []byte) []byte {
	if !a.whole || !a.wantsLabel() || a.o.Status < 200 || a.o.Status >= 300 || a.firstErr != nil || !isAnswer(a.judged) {
		return doc
	}
	a.labelled = true
	if a.o.Ambiguous { // its reader may take it for the only line of a stream
		s := dialect.New(a.o.Dialect, a.o.Stream)
		if s.Observe(frame.Fields{}, doc)&dialect.Last != 0 {
			return s.AppendLabel(nil, doc, *a.o.Label)
		}
	}
	return dialect.LabelJSON(make([]byte, 0, len(doc)+metaRoom), doc, *a.o.Label)
}

// metaRoom is about the size of the member meta, in bytes.
const metaRoom = 192

// keeper keeps the bytes of an answer up to a bound.
type keeper struct {
	room   int // bytes it may still take
	buf    []byte
	beyond bool // there were more
}

func (k *keeper) add(p []byte) {
	switch {
	case k.room == 0 && len(k.buf) == 0, k.beyond:
	case len(p) > k.room:
		*k = keeper{beyond: true}
	default:
		k.buf, k.room = append(k.buf, p...), k.room-len(p)
	}
}

// own keeps a whole document without a copy.
func (k *keeper) own(doc []byte) {
	if k.beyond = len(doc) > k.room; !k.beyond {
		k.buf = doc
	}
}

// Kept is the answer as its client got it, but for the label: whole units, without half a one that was dropped at the
// end. False if nothing is kept, the answer is larger than Options.Keep, or it is not known to be complete: after Finish
// as that said, before it if a stream is over. The bytes are not to be changed.
func (a *Answer) Kept() ([]byte, bool) {
	over := a.o.Kind == Stream && a.Over() && !a.stream.State().Error
	if a.o.Keep <= 0 || a.kept.beyond || !a.whole && !over {
		return nil, false
	}
	return a.kept.buf, true
}

// Relabel is a kept answer with a label, for a replay: in a stream on or in front of the unit that closes it, in a
// document as meta. id is the dialect it was judged by and opts what it was judged with. Without a label, and where it
// has no place, it is body itself; body is never changed.
func Relabel(id dialect.ID, contentType string, body []byte, opts dialect.Options, l *dialect.Label) []byte {
	if l == nil {
		return body
	}
	opts.EvidenceEOF = true // what is kept is complete
	o := Options{Kind: JSON, Dialect: id, Stream: opts, Status: 200, Label: l}
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); {
	case media == "text/event-stream":
		o.Kind = Stream
		if id.NDJSON() { // events where lines were expected
			o.Dialect = dialect.Generic
		}
	case id.NDJSON() && (media == "application/x-ndjson" || media == "application/jsonl" || media == "application/json"):
		o.Kind, o.Ambiguous = Stream, media == "application/json"
	case media != "application/json" && !strings.HasSuffix(media, "+json"):
		return body
	}
	a := New(o)
	fed := a.Feed(body)
	rest, _ := a.Finish(true)
	if !a.labelled {
		return body
	}
	return append(fed.Out[:len(fed.Out):len(fed.Out)], rest...)
}
