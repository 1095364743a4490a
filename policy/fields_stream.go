package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The field of a route that says how its answers are watched: false, or a mapping.

// Bounds of a stream's timers.
const (
	minStreamTimer = time.Millisecond
	maxStreamTimer = 24 * time.Hour
	maxLinger      = time.Hour
)

// streamField is `stream`.
func streamField() field[rawRoute] {
	o := streamFields()
	s := o.shape()
	s.typ = "`false`, or a mapping"
	s.schema = func() *jsonschema.Schema {
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Const: jsonschema.Ptr[any](false)}, o.shape().schema()}}
	}
	return field[rawRoute]{
		doc: doc{key: "stream", shape: s,
			meaning: "How answers are watched, so that one that is cut or late ends honestly. `false` passes bodies on unseen: only their headers are labelled."},
		read: func(d *decoder, n *yaml.Node, r *rawRoute) {
			r.stream.at = place(n)
			if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
				d.unwatched(n, &r.stream)
				return
			}
			o.read(d, n, &r.stream)
		},
	}
}

// unwatched reads `stream: false`.
func (d *decoder) unwatched(n *yaml.Node, s *rawStream) {
	watch, ok := d.boolean(n)
	if ok && watch {
		d.errorNode(n, "stream: true says nothing", "answers are watched by default: remove it, or write a mapping such as {idle: 30s}")
		return
	}
	s.off = ok
}

func streamFields() object[rawStream] {
	def := DefaultStream()
	return object[rawStream]{
		typ: "false, or a mapping such as {idle: 30s}",
		fields: []field[rawStream]{
			value(boolLeaf(), func(s *rawStream) *optional[bool] { return &s.seal }, doc{
				key: "seal", def: fmt.Sprint(def.Seal),
				meaning: "Whether answers take the hop through the seal, which turns an upstream that died in mid-answer into an end that can be told honestly. " +
					"With `false` such a cut reaches the caller as a cut, and is counted."}),
			value(timerLeaf(maxStreamTimer), func(s *rawStream) *optional[time.Duration] { return &s.idle }, doc{
				key: "idle", def: short(def.Idle),
				meaning: "The longest silence between data of a stream; comments and pings do not count as data. A longer one ends the stream as stalled. `0s`: unbounded."}),
			value(durationLeaf(minStreamTimer, maxLinger), func(s *rawStream) *optional[time.Duration] { return &s.linger }, doc{
				key: "linger", def: short(def.Linger),
				meaning: "How long a stream that is complete may stay open before it is ended."}),
			value(timerLeaf(maxStreamTimer), func(s *rawStream) *optional[time.Duration] { return &s.firstToken }, doc{
				key: "first_token", def: "unbounded",
				meaning: "The longest wait for the first content of a stream, counted from admission. `0s`: unbounded, up to the budget."}),
			value(timerLeaf(maxStreamTimer), func(s *rawStream) *optional[time.Duration] { return &s.max }, doc{
				key: "max", def: "unbounded",
				meaning: "The longest stream, counted from its headers. `0s`: unbounded, up to the budget."}),
			value(dialectLeaf(), func(s *rawStream) *optional[string] { return &s.dialect }, doc{
				key: "dialect", def: "told by path, content type and first data",
				meaning: "The wire format of the route's answers, where path and content type do not tell."}),
			value(wordLeaf[evidence](evidenceNames[:]), func(s *rawStream) *optional[evidence] { return &s.evidence }, doc{
				key: "evidence", def: evidenceNames[0],
				meaning: "What proves that a stream is complete: what the dialect sends (`dialect`), or its mere end (`eof`), for services that send no proof. With `eof` a cut that looks like an end passes for one."}),
			value(wordLeaf[Terminal](terminalNames[:]), func(s *rawStream) *optional[Terminal] { return &s.terminal }, doc{
				key: "terminal", def: def.Terminal.String(),
				meaning: "How an incomplete stream is ended: our frame as a legal last object of the dialect (`polyglot`), our frame alone (`bare`), or an error that every client of the dialect raises (`error`)."}),
			value(wordLeaf[hold](holdNames[:]), func(s *rawStream) *optional[hold] { return &s.hold }, doc{
				key: "hold_headers", def: holdNames[0],
				meaning: "How long response headers wait: for the first event (`event`), so that a start that fails or is late is still a status, or not at all (`none`)."}),
		},
	}
}

// evidence and hold are closed sets of two words, booleans in a snapshot.
type (
	evidence uint8
	hold     uint8
)

const (
	evidenceDialect evidence = iota
	evidenceEOF
	numEvidences
)

const (
	holdEvent hold = iota
	holdNone
	numHolds
)

// Dialects returns the names of the wire formats of streamed answers, as stream.dialect takes them.
func Dialects() []string {
	return []string{"generic", "openai_chat", "openai_completions", "openai_responses", "anthropic", "gemini", "ollama"}
}

// dialectLeaf is the name of a dialect.
func dialectLeaf() leaf[string] {
	word := wordLeaf[uint8](Dialects())
	return leaf[string]{
		shape: word.shape,
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			i, ok := word.read(d, n)
			if !ok {
				return "", false
			}
			return Dialects()[i], true
		},
	}
}

// timerLeaf is a duration, or 0s for a timer that is off.
func timerLeaf(hi time.Duration) leaf[time.Duration] {
	l := durationLeaf(0, hi)
	l.limits = fmt.Sprintf("0s, or %s to %s", short(minStreamTimer), short(hi))
	inner := l.read
	l.read = func(d *decoder, n *yaml.Node) (time.Duration, bool) {
		v, ok := inner(d, n)
		if ok && v > 0 && v < minStreamTimer {
			d.errorNode(n, short(v)+" is out of range", "0s, or "+short(minStreamTimer)+" and more")
			return 0, false
		}
		return v, ok
	}
	return l
}

// stream compiles how r's answers are watched; b is the route's budget.
func (c *compiler) stream(raw rawStream, b Budget) Stream {
	def := DefaultStream()
	if raw.off {
		return Stream{}
	}
	s := Stream{
		Watch:       true,
		Seal:        raw.seal.or(def.Seal),
		Idle:        raw.idle.or(def.Idle),
		Linger:      raw.linger.or(def.Linger),
		FirstToken:  raw.firstToken.or(def.FirstToken),
		Max:         raw.max.or(def.Max),
		Dialect:     raw.dialect.or(def.Dialect),
		EvidenceEOF: raw.evidence.or(evidenceDialect) == evidenceEOF,
		Terminal:    raw.terminal.or(def.Terminal),
		HoldHeaders: raw.hold.or(holdEvent) == holdEvent,
	}
	if !raw.bad() {
		c.deadTimers(raw, s, b)
	}
	return s
}

// deadTimers warns of timers that can never fire because another always fires first. Only what the file says is warned
// of: a default that a shorter timer makes idle needs no correction.
func (c *compiler) deadTimers(raw rawStream, s Stream, b Budget) {
	dead := func(t optional[time.Duration], name string, bound time.Duration, by string) {
		if t.set && t.v > 0 && bound > 0 && t.v >= bound {
			c.warnAt(t.at, fmt.Sprintf("%s %s can never fire: %s of %s ends the wait before it", name, short(t.v), by, short(bound)),
				fmt.Sprintf("lower it below %s or remove it", short(bound)))
		}
	}
	// Every budget, stated or default, covers at least the time to the first content.
	dead(raw.firstToken, "first_token", b.Max, "the largest budget")
	if s.Max > 0 {
		dead(raw.idle, "idle", s.Max, "stream.max")
		dead(raw.linger, "linger", s.Max, "stream.max")
	}
	if b.DefaultCovers == CoversWhole { // then no answer outlives a budget
		for _, t := range []struct {
			raw  optional[time.Duration]
			name string
		}{{raw.max, "max"}, {raw.idle, "idle"}, {raw.linger, "linger"}} {
			if t.name == "max" || s.Max == 0 || b.Max < s.Max { // said once
				dead(t.raw, t.name, b.Max, "the largest budget")
			}
		}
	}
}

// bad reports whether a timer was refused: what the timers say together is then not known.
func (s rawStream) bad() bool {
	return slices.ContainsFunc([]optional[time.Duration]{s.idle, s.linger, s.firstToken, s.max}, optional[time.Duration].bad)
}
