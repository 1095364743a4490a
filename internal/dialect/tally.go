package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// New returns the tracker of one streamed answer.
func New(id ID, o Options) Stream {
	t := tally{opts: o}
	switch id {
	case Chat:
		return newOpenAI(Chat, t)
	case Completions:
		return newOpenAI(Completions, t)
	case Responses:
		return &responses{tally: t}
	case Anthropic:
		return &anthropic{tally: t}
	case Gemini:
		return &gemini{tally: t}
	case Ollama:
		return &ollama{tally: t}
	}
	return &generic{tally: t}
}

// ByEvent finds the dialect of a stream of which the path told nothing by its first event. False: no dialect we know.
func ByEvent(f frame.Fields) (ID, bool) {
	doc, ok := parse(f.Data)
	if !ok || !doc.object() {
		return Generic, false
	}
	object, kind := doc.get("object"), doc.get("type")
	switch {
	case object.is("chat.completion.chunk"):
		return Chat, true
	case object.is("text_completion"):
		return Completions, true
	case bytes.HasPrefix(kind.inner(), []byte("response.")):
		return Responses, true
	case kind.is("message_start") && doc.get("message").object():
		return Anthropic, true
	case doc.get("candidates").array():
		return Gemini, true
	}
	return Generic, false
}

// tally is what every dialect keeps of an answer.
type tally struct {
	opts      Options
	data      bool            // a unit with data has come
	content   bool            // something a reader sees, thoughts included
	visible   bool            // more than thoughts and white space
	refused   bool            // a refusal in place of an answer
	failed    bool            // the upstream ended with an error of its own
	unframed  bool            // … which is no event: nothing can follow it
	trouble   outcome.Outcome // what that error means, or the abort we withheld
	ended     outcome.Outcome // what the finish reasons mean
	finish    string          // the last finish reason
	deltas    int             // units with content: at least so many tokens
	usage     Usage
	blind     bool // a unit has passed that nobody could read
	abandoned bool // a finish that reports an abort was withheld
	draft     bool // a brownout further in says that its answer is incomplete
}

// open does what is the same in every event stream. more is false if nothing is left to read in the unit: it carries
// no data, or what is no event of any dialect. doc is nil for a sentinel and for what cannot be read.
func (t *tally) open(f frame.Fields) (doc text, m Mark, more bool) {
	if len(f.Error) > 0 {
		doc, _ := parse(f.Error)
		return nil, Data | t.fail(readFault(doc)), false
	}
	data := bytes.TrimSpace(f.Data)
	if !f.HasData {
		return nil, t.bare(f.Bare), false
	}
	if len(data) == 0 {
		return nil, 0, false
	}
	if isPing(f.Name) { // says nothing, in any dialect
		return nil, 0, false
	}
	if string(data) == "[DONE]" {
		return nil, Data | Sentinel, true
	}
	doc, ok := parse(data)
	if !ok && !t.data {
		return nil, Data | Foreign, false
	}
	return doc, Data, ok
}

// bare judges a body that came as it is under the type of an event stream: an error, or a page. No client sees it.
func (t *tally) bare(line []byte) Mark {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || t.data || (line[0] != '{' && line[0] != '[' && line[0] != '<') {
		return 0
	}
	doc, _ := parse(line)
	t.unframed = true
	return t.fail(readFault(doc)) &^ Final // who knows how much of it is still to come
}

// isPing says whether an event of that name or type only keeps the connection alive.
func isPing(name []byte) bool {
	switch string(name) {
	case "ping", "keepalive", "keep-alive", "heartbeat":
		return true
	}
	return false
}

// beats says the same of a whole event, by the type in it. One that carries the frame of the contract is more than that.
func beats(doc text) bool {
	return isPing(doc.get("type").inner()) && doc.get("degraded") == nil
}

// noted ends an Observe: it notes that data has come, and takes back what a unit that only beats is not.
func (t *tally) noted(m Mark) Mark {
	if m&beat != 0 {
		return m &^ (beat | Data)
	}
	t.data = t.data || m&(Data|Foreign) == Data
	return m
}

// fail notes the upstream's own error; the first counts.
func (t *tally) fail(f fault) Mark {
	if !t.failed {
		t.trouble = f.outcome(0)
	}
	t.failed = true
	return Failed | Final
}

// Blind notes a unit that nobody could read.
func (t *tally) Blind() { t.blind, t.content, t.visible = true, true, true }

// AppendHonest appends nothing: in most dialects a unit that lies says nothing else.
func (t *tally) AppendHonest(dst, _ []byte) []byte { return dst }

// saw notes content. shown says that it is more than thoughts and white space.
func (t *tally) saw(shown bool) Mark {
	t.content = true
	t.visible = t.visible || shown
	t.deltas++
	return Content
}

// speak notes text a reader sees, if there is any in v: a string.
func (t *tally) speak(v text) Mark {
	if !v.quoted() || len(v) == 2 {
		return 0
	}
	return t.saw(t.visible || v.visible())
}

// think notes thoughts, which are content but no answer.
func (t *tally) think(v text) Mark {
	if !v.set() {
		return 0
	}
	return t.saw(false)
}

// refuse notes the text of a refusal.
func (t *tally) refuse(v text) Mark {
	if !v.quoted() || len(v) == 2 {
		return 0
	}
	t.refused = true
	return t.saw(true)
}

// finished notes a finish reason as the upstream wrote it, and what it means.
func (t *tally) finished(as []byte, f finish) {
	if as = as[:min(len(as), maxReason)]; t.finish != string(as) {
		t.finish = string(as)
	}
	if f.aborted() {
		t.trouble = outcome.First(t.trouble, f.outcome())
		return
	}
	t.ended = outcome.First(t.ended, f.outcome())
}

// inner reads the frame of a brownout further in, if doc is one.
func (t *tally) inner(doc text) {
	if doc.get("complete").isFalse() && doc.get("degraded").isTrue() {
		t.draft = true
	}
}

// closing is the mark of the unit that closes the answer, if the answer is one that a label may call complete.
func (t *tally) closing() Mark {
	if t.failed || t.abandoned || t.draft {
		return 0
	}
	return Last
}

// abandon notes that the unit reports an abort as if it were an end.
func (t *tally) abandon() Mark {
	t.abandoned = true
	return Withhold
}

// state is the State of a dialect that has seen its evidence, or not.
func (t *tally) state(complete bool) State {
	s := State{Complete: complete, Content: t.content, Error: t.failed, Finish: t.finish, Usage: t.usage}
	if t.failed || t.abandoned {
		s.Complete = false
	} else if !complete && (t.opts.EvidenceEOF && t.data || t.blind) {
		s.Complete, s.Provisional = true, true
	}
	s.Class = t.class(s.Complete)
	return s
}

// class is the outcome if the answer ended now. An answer of thoughts alone is empty if the model says it is done; at a
// length limit it is capped.
func (t *tally) class(complete bool) outcome.Outcome {
	switch {
	case t.trouble != outcome.Unknown:
		return t.trouble
	case !complete:
		return outcome.Unknown
	case t.refused, t.ended == outcome.Refusal:
		return outcome.Refusal
	case !t.content, !t.visible && t.ended != outcome.Capped:
		return outcome.Empty
	case t.ended == outcome.Unknown && !t.blind:
		return outcome.OK
	}
	return t.ended // Unknown, if it was said in what nobody could read
}

// settled says whether nothing of ours belongs behind the stream, because it is complete beyond doubt or ends with
// what no client reads.
func (s State) settled() bool { return s.Complete && !s.Provisional }

// maxOpen bounds how many choices, items or blocks of one answer are followed; further ones are not.
const maxOpen = 128

// slots are the numbered parts of an answer, in the order in which they began.
type slots[T any] struct {
	index  []int
	part   []T
	beyond bool // there were more than maxOpen
}

// at is part i, made if it is new; nil beyond maxOpen or for what is no index.
func (s *slots[T]) at(i text) *T {
	n, ok := i.number()
	if i.set() && !ok {
		return nil
	}
	for k, have := range s.index {
		if have == n {
			return &s.part[k]
		}
	}
	if len(s.index) == maxOpen {
		s.beyond = true
		return nil
	}
	var fresh T
	s.index, s.part = append(s.index, n), append(s.part, fresh)
	return &s.part[len(s.part)-1]
}
