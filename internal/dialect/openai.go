package dialect

import (
	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Bounds on what is remembered of a chunk's head, in bytes. A longer member is left out of our chunk's head.
const (
	maxHead    = 1024 // id, model
	maxCreated = 24
)

// choice is one of the answers that a request with n > 1 gets in one stream.
type choice struct {
	finished bool
	tool     bool // a tool call has begun
}

// openAI is a stream of choices: chat completions and completions, which differ in how text lies in a choice.
type openAI struct {
	tally
	id      ID
	text    string // the member of a choice in which a chunk's content lies
	choices slots[choice]

	ident, created, model text // the first of a chunk that are not empty

	sentinel   bool // a [DONE] was forwarded
	continuous bool // usage came with content, as vLLM's continuous_usage_stats does
}

func newOpenAI(id ID, t tally) *openAI {
	o := &openAI{tally: t, id: id, text: "delta"}
	if id == Completions {
		o.text = "text"
	}
	return o
}

func (o *openAI) ID() ID { return o.id }

// Observe takes a chunk. A finish reason that reports an abort, and a sentinel without a finish, are withheld; so the
// sentinel is never ahead of our ending. Content of other choices in a withheld chunk is lost with it.
func (o *openAI) Observe(f frame.Fields, _ []byte) Mark {
	doc, m, more := o.open(f)
	switch {
	case !more:
		o.data = o.data || m&(Data|Foreign) == Data
		return m
	case m&Sentinel != 0:
		return m | o.stop()
	}
	m |= o.chunk(doc, string(f.Name) == "error")
	o.data = o.data || m&Foreign == 0
	return m
}

// stop judges a [DONE].
func (o *openAI) stop() Mark {
	o.data = true
	was := o.complete()
	if !o.failed && (o.abandoned || !was && len(o.choices.part) > 0 && !o.opts.EvidenceEOF) {
		return Withhold
	}
	first := !o.sentinel
	o.sentinel = true
	var m Mark
	if first {
		m = o.closing()
	}
	if !was && o.complete() && !o.failed {
		m |= Finished
	}
	return m
}

// complete says whether every choice has finished. A sentinel alone completes an answer without choices, which is
// empty, and closes the books: what follows begins no choice.
func (o *openAI) complete() bool {
	if o.sentinel {
		return true
	}
	for i := range o.choices.part {
		if !o.choices.part[i].finished {
			return false
		}
	}
	return len(o.choices.part) > 0
}

// chunk reads one data frame.
func (o *openAI) chunk(doc text, named bool) Mark {
	var choices, usage, oops text
	chunky := false
	for m := doc.members(); m.next(); {
		switch string(m.key) {
		case "choices":
			choices, chunky = m.value, m.value.array()
		case "usage":
			usage = m.value
		case "error":
			oops = m.value
		case "object":
			chunky = chunky || m.value.is(o.object())
		case "complete":
			if m.value.isFalse() {
				o.inner(doc)
			}
		case "id":
			hold(&o.ident, m.value, maxHead)
		case "model":
			hold(&o.model, m.value, maxHead)
		case "created":
			if _, ok := m.value.number(); ok && !m.value.quoted() && (o.created == nil || string(o.created) == "0") {
				o.created = m.value.keep(maxCreated)
			}
		}
	}
	if oops.set() || named || !chunky && isFault(doc) {
		return o.fail(readFault(doc))
	}
	if !chunky && !usage.object() {
		if !o.data {
			return Foreign
		}
		return 0
	}
	return o.body(choices, usage)
}

// hold keeps the first string that is not empty.
func hold(kept *text, v text, limit int) {
	if *kept == nil && v.quoted() && len(v) > 2 {
		*kept = v.keep(limit)
	}
}

// body reads the choices and the usage of a chunk.
func (o *openAI) body(choices, usage text) Mark {
	var m Mark
	was, some, ended := o.complete(), false, false
	for e := choices.elements(); e.nextElement() && !o.sentinel; {
		var v [5]text
		e.value.pick(v[:], "index", "finish_reason", o.text, "message", "reasoning")
		c := o.choices.at(v[0])
		if c == nil || !e.value.object() {
			continue
		}
		some = true
		switch content := v[2]; {
		case o.id == Completions:
			m |= o.speak(content) | o.think(v[4])
		case content.object():
			m |= readMessage(&o.tally, c, content)
		default: // a whole answer; some servers stream it so
			m |= readMessage(&o.tally, c, v[3])
		}
		m |= o.finish(c, v[1])
		ended = ended || c.finished
	}
	if usage.object() {
		o.continuous = o.continuous || some && !ended
		readUsage(&o.usage, usage, "prompt_tokens", "completion_tokens")
	}
	if !was && o.complete() && !o.abandoned && !o.failed {
		m |= Finished | o.closing()
	}
	return m
}

// finish reads a choice's finish reason: a word, or the object of an engine that reports an abort.
func (o *openAI) finish(c *choice, v text) Mark {
	how := reason(v.inner())
	word := v.inner()
	if v.object() {
		word = v.get("type").inner()
		if how = reason(word); !how.aborted() {
			return 0
		}
		// An engine that refuses the request or its queue says so with a status (SGLang).
		if code := v.get("status_code").count(); code == 503 || 400 <= code && code < 500 {
			o.trouble = outcome.First(o.trouble, fault{code: code}.outcome(0))
			o.tally.finish = string(word[:min(len(word), maxReason)])
			return o.abandon()
		}
	}
	switch {
	case how == finishNone:
		return 0
	case how.aborted():
		o.finished(word, how)
		return o.abandon()
	}
	c.finished = true
	o.finished(word, how)
	return 0
}

// readUsage takes over the counts that are there: some come with one chunk, some with another.
func readUsage(u *Usage, v text, input, output string) {
	for m := v.members(); m.next(); {
		n, ok := m.value.number()
		switch {
		case !ok:
		case string(m.key) == input:
			u.Input = n
		case string(m.key) == output:
			u.Output = n
		}
	}
}

func (o *openAI) object() string {
	if o.id == Completions {
		return "text_completion"
	}
	return "chat.completion.chunk"
}

// openTool says whether a choice has begun a tool call and not finished.
func (o *openAI) openTool() bool {
	for i := range o.choices.part {
		if c := &o.choices.part[i]; c.tool && !c.finished {
			return true
		}
	}
	return false
}

func (o *openAI) State() State {
	s := o.state(o.complete())
	s.OpenTool = o.openTool()
	return s
}

// AppendEnding finishes every choice that has not finished, as one cut at a length limit, and sends the sentinel.
// After an error of the upstream only a missing sentinel remains to be said.
func (o *openAI) AppendEnding(dst []byte, e Ending) []byte {
	s := o.State()
	switch {
	case s.settled(), o.unframed:
		return dst
	case o.failed:
	case o.opts.Terminal == Bare:
		return appendBare(dst, e)
	case o.opts.Terminal == Error, s.OpenTool:
		dst = append(dst, `data: {"error":{"message":"`...)
		dst = append(dst, e.message()...)
		dst = append(dst, `","type":"server_error","param":null,"code":"`...)
		dst = append(dst, e.Reason.String()...)
		dst = append(dst, "\"}}\n\n"...)
	default:
		dst = o.appendFinish(dst, e)
	}
	if o.sentinel {
		return dst
	}
	return append(dst, doneFrame...)
}

// appendFinish appends the finishing chunk, and the chunk of usage that a caller of continuous usage waits for.
func (o *openAI) appendFinish(dst []byte, e Ending) []byte {
	dst = o.appendHead(append(dst, "event: done\ndata: {"...))
	open := 0
	for i, c := range o.choices.part {
		if c.finished {
			continue
		}
		if open++; open > 1 {
			dst = append(dst, ',')
		}
		dst = o.appendChoice(dst, o.choices.index[i], `{}`)
	}
	if len(o.choices.part) == 0 {
		dst = o.appendChoice(dst, 0, `{"role":"assistant","content":""}`)
	}
	dst = closeKeys(append(dst, ']'), e, "\n\n")
	if !o.continuous {
		return dst
	}
	dst = o.appendHead(append(dst, "data: {"...))
	dst = appendInt(append(dst, `],"usage":{"prompt_tokens":`...), o.usage.Input)
	dst = appendInt(append(dst, `,"completion_tokens":`...), o.usage.Output)
	dst = appendInt(append(dst, `,"total_tokens":`...), o.usage.Input+o.usage.Output)
	return append(dst, "}}\n\n"...)
}

// appendHead appends the members of a chunk up to its choices. Accumulating clients demand the id they have seen.
func (o *openAI) appendHead(dst []byte) []byte {
	dst = appendOr(append(dst, `"id":`...), o.ident, `"brownout"`)
	dst = append(append(dst, `,"object":"`...), o.object()...)
	dst = appendOr(append(dst, `","created":`...), o.created, `0`)
	dst = appendOr(append(dst, `,"model":`...), o.model, `""`)
	return append(dst, `,"choices":[`...)
}

// appendChoice appends the finish of one choice. In chat it carries delta, in completions an empty text.
func (o *openAI) appendChoice(dst []byte, index int, delta string) []byte {
	dst = appendInt(append(dst, `{"index":`...), index)
	if o.id == Completions {
		dst = append(dst, `,"text":"","logprobs":null`...)
	} else {
		dst = append(append(dst, `,"delta":`...), delta...)
	}
	return append(dst, `,"finish_reason":"length"}`...)
}

// appendOr appends v, or what stands in for it.
func appendOr(dst []byte, v text, instead string) []byte {
	if v == nil {
		return append(dst, instead...)
	}
	return append(dst, v...)
}

// AppendLabel puts the label into the chunk that finishes the last choice. In front of what takes no label it is a chunk
// of its own that says nothing else: never behind a finish reason, which some clients would then forget. It repeats a
// choice that has been seen: clients demand one, and take none they have not seen. Should a further choice begin behind
// the label and be cut, the ending has the last word.
func (o *openAI) AppendLabel(dst, unit []byte, l Label) []byte {
	if o.opts.Terminal == Bare {
		return append(l.appendBare(dst), unit...)
	}
	out, ok, present := labelEvent(dst, unit, l)
	switch {
	case ok:
		return out
	case present:
		return append(dst, unit...)
	}
	dst = o.appendHead(append(dst, "event: done\ndata: {"...))
	if len(o.choices.part) > 0 {
		dst = appendInt(append(dst, `{"index":`...), o.choices.index[0])
		if o.id == Completions {
			dst = append(dst, `,"text":"","logprobs":null`...)
		} else {
			dst = append(dst, `,"delta":{}`...)
		}
		dst = append(dst, `,"finish_reason":null}`...)
	}
	return append(l.closeKeys(append(dst, ']'), "\n\n"), unit...)
}
