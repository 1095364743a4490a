package answer

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Kind is how a body can be read.
type Kind uint8

// The kinds; the zero value reads nothing.
const (
	Opaque Kind = iota // passes as it comes
	Stream             // events or lines
	JSON               // one document, collected
)

// MaxJSON is the largest JSON answer that is collected, in bytes; a larger one passes as it comes.
const MaxJSON = 1 << 20

// maxFirstError bounds what is kept of an error that comes in place of an answer.
const maxFirstError = 64 << 10

// Options describe an answer at its headers.
type Options struct {
	Kind    Kind
	Dialect dialect.ID
	Pinned  bool // the dialect is policy: a stream that does not look like it is still judged by it
	Guess   bool // nothing told the dialect: the first event does, if it can
	// Ambiguous: the body of a Stream may be one document instead, such as an answer of Ollama that is not streamed, or
	// that of another service with such a path. Its first line tells; until then, and for a document, Kind is JSON.
	Ambiguous bool
	Stream    dialect.Options
	Status    int
	MaxUnit   int // largest unit held back; 0 means frame.DefaultMax
	// Label is what a degraded answer says of itself once it is complete; nil if it is not degraded. An answer with a
	// status of 400 or more is never labelled.
	Label *dialect.Label
	// Keep is up to how many bytes of the answer are kept without the label, for a replay; 0 keeps none.
	Keep int
}

// Answer is one body. Make one with New.
type Answer struct {
	o        Options
	split    frame.Splitter
	stream   dialect.Stream
	seen     bool // a unit with data has been observed
	units    int  // units so far
	fed      bool // there were bytes
	blind    bool // a unit has passed that is too large to be read
	empty    bool // Finish found that there were no bytes at all
	ends     ends
	scratch  []byte // joined data lines
	json     []byte // collected so far
	doubt    doubt  // whether it is a document
	overflow bool   // the JSON is too large to collect
	judged   dialect.State
	firstErr []byte // the error object that came before any content
	labelled bool   // the label has gone on
	kept     keeper // for a replay
	whole    bool   // Finish found the answer complete, and its end clean
}

// New starts an answer.
func New(o Options) *Answer {
	a := &Answer{o: o, kept: keeper{room: o.Keep}}
	a.split.Max = o.MaxUnit
	a.o.Stream.Pinned = o.Pinned
	if o.Status >= 400 {
		a.o.Label = nil
	}
	switch {
	case o.Kind != Stream:
	case o.Ambiguous:
		a.o.Kind, a.doubt.open = JSON, true
	default:
		a.open()
	}
	return a
}

// open begins a stream.
func (a *Answer) open() {
	a.stream = dialect.New(a.o.Dialect, a.o.Stream)
	if a.o.Dialect.NDJSON() {
		a.split.Kind = frame.NDJSON
	}
}

// Fed is what became of the bytes of one Feed.
type Fed struct {
	Out   []byte       // goes on now; points into what was fed or is new, and is the caller's
	Marks dialect.Mark // of all units among them
	// Ready: the headers may go: a whole unit is there, or there is nothing to wait for.
	Ready bool
	// Lie: the upstream ends its answer with a lie, which is not in Out, but for what it says beside that; end it with an
	// ending of ours.
	Lie bool
}

// Feed takes the next bytes of the body. p may be kept in Out, so the caller must not change it.
func (a *Answer) Feed(p []byte) Fed {
	switch a.o.Kind {
	case Stream:
		return a.feedStream(p)
	case JSON:
		return a.feedJSON(p)
	}
	a.kept.add(p)
	return Fed{Out: p, Marks: dialect.Data, Ready: true}
}

func (a *Answer) feedStream(p []byte) Fed {
	var f Fed
	whole := 0 // bytes of p that went on as units in place: the common case costs no copy
	inPlace := len(a.split.Tail()) == 0
	a.fed = a.fed || len(p) > 0
	a.split.Feed(p, func(e frame.Event) bool {
		f.Ready = true
		m := a.take(e)
		f.Marks |= m
		lie, labelled := m&dialect.Withhold != 0, m&dialect.Last != 0 && a.wantsLabel()
		if inPlace && (lie || labelled) {
			inPlace, f.Out = false, bytes.Clone(p[:whole])
		}
		if lie {
			f.Lie, f.Out = true, a.stream.AppendHonest(f.Out, e.Block)
			return false
		}
		a.kept.add(e.Block)
		a.ends.note(e.Block)
		switch {
		case labelled:
			f.Out = a.appendLabel(f.Out, e.Block)
		case inPlace:
			whole += len(e.Block)
		default:
			f.Out = append(f.Out, e.Block...)
		}
		return true
	})
	if inPlace {
		f.Out = p[:whole]
	}
	return f
}

// take is what a unit or a piece of one is.
func (a *Answer) take(e frame.Event) dialect.Mark {
	if !e.Unframed {
		return a.observe(e)
	}
	a.blind = true
	a.stream.Blind()
	return dialect.Data | dialect.Content
}

// change goes over to another dialect.
func (a *Answer) change(id dialect.ID) {
	a.stream = dialect.New(id, a.o.Stream)
	if a.blind {
		a.stream.Blind()
	}
}

// observe shows a unit to the dialect. A first unit of another dialect makes the stream generic.
func (a *Answer) observe(e frame.Event) dialect.Mark {
	first := a.units == 0
	a.units++
	var fields frame.Fields
	line := e.Block
	if a.split.Kind == frame.SSE {
		fields, a.scratch = e.Parse(first, a.scratch)
		line = nil
	} else {
		line = bytes.TrimRight(line, "\r\n")
	}
	if a.o.Guess && !a.seen && a.split.Kind == frame.SSE {
		if id, ok := dialect.ByEvent(fields); ok && id != a.stream.ID() {
			a.change(id)
		}
	}
	m := a.stream.Observe(fields, line)
	if m&dialect.Foreign != 0 && !a.seen && !a.o.Pinned && a.stream.ID() != dialect.Generic && a.split.Kind == frame.SSE {
		a.change(dialect.Generic)
		m = a.stream.Observe(fields, line)
	}
	if m&dialect.Failed != 0 && !a.seen && a.firstErr == nil {
		a.keepError(fields, e.Block)
	}
	a.seen = a.seen || m&dialect.Data != 0
	return m
}

// keepError keeps the error object that came in place of an answer, for an error status while headers are held.
func (a *Answer) keepError(f frame.Fields, block []byte) {
	body := bytes.TrimSpace(block)
	if f.HasData {
		body = f.Data
	}
	if len(body) <= maxFirstError && gjson.ValidBytes(body) {
		a.firstErr = bytes.Clone(body)
	}
}

func (a *Answer) feedJSON(p []byte) Fed {
	if a.overflow {
		a.kept.add(p)
		return Fed{Out: p, Marks: dialect.Data, Ready: true}
	}
	a.json = append(a.json, p...)
	if a.doubt.open && a.areLines(p) {
		return a.feedStream(a.asLines())
	}
	if len(a.json) <= MaxJSON {
		return Fed{}
	}
	a.overflow, a.doubt.open = true, false
	out := a.json
	a.json = nil
	a.kept.add(out)
	return Fed{Out: out, Marks: dialect.Data, Ready: true}
}

// Finish takes the end of the body, which is clean or a cut: rest goes on before it. After it State is final. complete is
// false when the answer lacks its evidence: an ending must follow, or an error stand in for half a document. What is
// missing of the label is in rest. A stream of no bytes at all that ends cleanly is complete and empty, and takes no label.
func (a *Answer) Finish(clean bool) (rest []byte, complete bool) {
	if a.doubt.open && a.unfinishedLine() {
		rest = a.feedStream(a.asLines()).Out
	}
	switch a.o.Kind {
	case Stream:
		if a.empty = clean && !a.fed; a.empty {
			return nil, true
		}
		more, complete := a.finishStream(clean)
		st := a.stream.State()
		a.whole = complete && !st.Error && !(a.blind && st.Class == outcome.Unknown)
		return append(rest, more...), complete
	case JSON:
		if a.overflow {
			a.whole = clean
			return nil, true
		}
		rest, a.json = a.json, nil
		complete = a.judgeJSON(rest)
		a.whole = complete
		a.kept.own(rest)
		return a.labelDocument(rest), complete
	}
	a.whole = clean
	return nil, true
}

// judgeJSON judges a collected document; false: it is half a document, however cleanly its body ended. An error in the
// place of an answer is kept.
func (a *Answer) judgeJSON(doc []byte) bool {
	a.judged = dialect.JudgeJSON(a.o.Dialect, a.o.Status, doc)
	if a.o.Status >= 300 {
		return true
	}
	if len(doc) <= maxFirstError && dialect.ErrorAlone(a.o.Dialect, doc) {
		a.firstErr = doc
	}
	return a.judged.Class != outcome.Truncated || gjson.ValidBytes(doc)
}

// End writes an ending of ours at this point; what is held back is dropped. False: the body cannot be ended honestly
// here, because it is not a stream that anybody knows, or stops inside a unit that has partly gone on.
func (a *Answer) End(e dialect.Ending) ([]byte, bool) {
	if a.o.Kind != Stream || a.split.Unframed() || a.stream.State().Foreign {
		return nil, false
	}
	return a.ends.lead(a.stream.ID(), a.stream.AppendEnding(nil, e)), true
}

// State is what is known of the answer so far; of a JSON answer only after Finish.
func (a *Answer) State() dialect.State {
	switch {
	case a.empty:
		return dialect.State{Complete: true, Class: outcome.Empty}
	case a.o.Kind == Stream:
		return a.stream.State()
	}
	return a.judged
}

// Over says whether the upstream has said all of a stream that it has to say: it is complete however it ends, or the
// upstream has failed in it.
func (a *Answer) Over() bool {
	if a.o.Kind != Stream {
		return false
	}
	st := a.stream.State()
	return (st.Complete && !st.Provisional) || st.Error
}

// LastWord says whether units with these marks were the upstream's last word, so that a stream that stays open behind them
// has nothing left to say. A finish reason behind which more may come is none.
func (a *Answer) LastWord(m dialect.Mark) bool { return m&dialect.Final != 0 && a.Over() }

// Collected says whether the whole answer is still held, so that another can take its place.
func (a *Answer) Collected() bool { return a.o.Kind == JSON && !a.overflow }

// FirstError is the error object that came in place of an answer, or nil.
func (a *Answer) FirstError() []byte { return a.firstErr }

// Dialect is the dialect the answer is judged by.
func (a *Answer) Dialect() dialect.ID {
	if a.stream != nil {
		return a.stream.ID()
	}
	return a.o.Dialect
}

// Kind is how the body is read.
func (a *Answer) Kind() Kind { return a.o.Kind }

// Held is how many bytes are held back.
func (a *Answer) Held() int { return len(a.split.Tail()) + len(a.json) }

// Truth is what an answer that ends with a lie is instead: the reason of the ending that replaces it, and the outcome.
func (a *Answer) Truth() (outcome.Degraded, outcome.Outcome) {
	switch class := a.State().Class; class {
	case outcome.Evicted:
		return outcome.DegradedPreempted, class
	case outcome.Unknown: // a sentinel that nothing stands behind
		return outcome.DegradedUpstreamTruncated, outcome.Truncated
	default:
		return outcome.DegradedUpstreamError, class
	}
}

// Whole says whether the document collected so far is a whole one.
func (a *Answer) Whole() bool { return len(a.json) > 0 && gjson.ValidBytes(a.json) }
