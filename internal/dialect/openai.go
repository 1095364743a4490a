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
	repeats  bool   // it went on after a finish: its finish reasons prove nothing before the end
	tool     bool   // a tool call has begun
	how      finish // it finished
}

// openAI is a stream of choices: chat completions and completions, which differ in how text lies in a choice.
type openAI struct {
	tally
	id      ID
	text    string // the member of a choice in which a chunk's content lies
	choices slots[choice]

	ident, created, model text // the first of a chunk that are not empty

	sentinel bool // a [DONE] was forwarded
	worth    bool // the chunk says more than that a choice was aborted
	usageIs  usageHow
	mistral  bool // clients demand content in every delta
}

// usageHow is what the chunks so far say of the usage the caller waits for.
type usageHow uint8

const (
	usageUntold usageHow = iota
	usageNever           // null, from a server that writes null for all it has not
	usageLast            // null: asked for, and to come in a chunk without choices
	usageAlways          // with content, as vLLM's continuous_usage_stats does
	usageGiven           // in a chunk without choices
)

func newOpenAI(id ID, t tally) *openAI {
	o := &openAI{tally: t, id: id, text: "delta", mistral: t.opts.Mistral}
	if id == Completions {
		o.text = "text"
	}
	return o
}

func (o *openAI) ID() ID { return o.id }

// Observe takes a chunk. A finish reason that reports an abort, and a sentinel without a finish, are withheld; so the
// sentinel is never ahead of our ending.
func (o *openAI) Observe(f frame.Fields, _ []byte) Mark {
	doc, m, more := o.open(f)
	switch {
	case !more:
	case m&Sentinel != 0:
		m |= o.stop()
	default:
		m |= o.chunk(doc, string(f.Name) == "error")
	}
	return o.noted(m)
}

// stop judges a [DONE].
func (o *openAI) stop() Mark {
	was := o.complete()
	if !o.failed && (o.abandoned || !o.allFinished() && len(o.choices.part) > 0 && !o.opts.EvidenceEOF && !o.blind) {
		return Withhold
	}
	m := Final
	if !o.sentinel {
		m |= o.closing()
	}
	o.sentinel = true
	if !was && o.complete() && !o.failed {
		m |= Finished
	}
	return m
}

// complete says whether every choice has finished; where there are more than are followed, only the sentinel says that.
// A sentinel alone completes an answer without choices, which is empty, and closes the books: what follows begins none.
func (o *openAI) complete() bool {
	return o.sentinel || len(o.choices.part) > 0 && !o.choices.beyond && o.allFinished()
}

// allFinished says whether every choice that is followed has finished.
func (o *openAI) allFinished() bool {
	for i := range o.choices.part {
		if !o.choices.part[i].finished {
			return false
		}
	}
	return true
}

// firm says whether the answer is complete even if the upstream keeps the stream open.
func (o *openAI) firm() bool {
	for i := range o.choices.part {
		if o.choices.part[i].repeats && !o.sentinel {
			return false
		}
	}
	return o.complete()
}

// chunk reads one data frame.
func (o *openAI) chunk(doc text, named bool) Mark {
	var choices, usage, oops text
	chunky, object := false, false
	for m := doc.members(); m.next(); {
		switch string(m.key) {
		case "choices":
			choices, chunky = m.value, m.value.array()
		case "usage":
			usage = m.value
		case "error":
			oops = m.value
		case "object":
			object = true
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
		switch {
		case beats(doc):
			return beat
		case !o.data:
			return Foreign
		}
		return 0
	}
	o.mistral = o.mistral || o.id == Chat && isMistral(o.ident, !object && o.model != nil)
	return o.body(choices, usage)
}

// isMistral says whether a chunk looks like one of Mistral's API: it has a bare identifier of 32 hexadecimal digits, or
// it has an identifier and a model but does not say what object it is. Others who look like that lose nothing.
func isMistral(ident text, bare bool) bool {
	in := ident.inner()
	if len(in) == 0 || bare {
		return len(in) > 0
	}
	for _, c := range in {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return len(in) == 32
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
	was, some, ended := o.complete(), text(nil), false
	for e := choices.elements(); e.nextElement() && !o.sentinel; {
		var v [6]text
		e.value.pick(v[:], "index", "finish_reason", o.text, "message", "reasoning", "reasoning_details")
		c := o.choices.at(v[0])
		if !e.value.object() {
			continue
		}
		var beyond choice
		if c == nil {
			if v[0].set() && !v[0].isNumber() {
				continue
			}
			c = &beyond
		}
		some = e.value
		said := o.say(c, v)
		if said&Content != 0 && c.finished {
			o.goOn(c)
		}
		m |= said | o.finish(c, v[1])
		ended = ended || c.finished
	}
	o.worth = m&Content != 0 || ended
	o.readUsage(usage, some, ended)
	if !was && o.complete() && !o.abandoned && !o.failed {
		m |= Finished | o.closing()
	}
	return m
}

// say reads what a choice says in a chunk: v[2:] are the members that body picks.
func (o *openAI) say(c *choice, v [6]text) Mark {
	switch content := v[2]; {
	case o.id == Completions:
		m := o.speak(content) | o.think(v[4])
		if m == 0 && len(v[5]) > 2 && v[5].array() {
			m = o.saw(false)
		}
		return m
	case content.object():
		return readMessage(&o.tally, c, content)
	}
	return readMessage(&o.tally, c, v[3]) // a whole answer; some servers stream it so
}

// goOn takes the finish of a choice back that says more. From then on only the end of the stream proves a finish.
func (o *openAI) goOn(c *choice) {
	c.finished, c.repeats, c.how = false, true, finishNone
	o.ended = outcome.Unknown
	for i := range o.choices.part {
		o.ended = outcome.First(o.ended, o.choices.part[i].how.outcome())
	}
}

// readUsage reads the usage of a chunk. some is a choice in it, if there is any.
func (o *openAI) readUsage(usage, some text, ended bool) {
	switch {
	case usage.object():
		readUsage(&o.usage, usage, "prompt_tokens", "completion_tokens")
		switch {
		case some == nil:
			o.usageIs = usageGiven
		case !ended:
			o.usageIs = usageAlways
		}
	case o.usageIs == usageUntold && usage.begins('n') && some != nil:
		if o.usageIs = usageLast; some.get("matched_stop") != nil { // SGLang
			o.usageIs = usageNever
		}
	}
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
	c.finished, c.how = true, how
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
	s.Provisional = s.Provisional || s.Complete && !o.firm()
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
	case o.opts.Terminal == Error, s.OpenTool, o.choices.beyond:
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

// appendFinish appends the finishing chunk, and the chunk of usage that a caller who asked for it waits for. A choice
// whose finish reasons have proved nothing is finished again.
func (o *openAI) appendFinish(dst []byte, e Ending) []byte {
	dst = o.appendHead(append(dst, "event: done\ndata: {"...))
	delta := `{}`
	switch {
	case len(o.choices.part) == 0:
		dst = o.appendChoice(dst, 0, `{"role":"assistant","content":""}`)
	case o.mistral:
		delta = `{"content":""}`
	}
	open := 0
	for i, c := range o.choices.part {
		if c.finished && !c.repeats {
			continue
		}
		if open++; open > 1 {
			dst = append(dst, ',')
		}
		dst = o.appendChoice(dst, o.choices.index[i], delta)
	}
	dst = closeKeys(append(dst, ']'), e, "\n\n")
	if o.usageIs != usageAlways && o.usageIs != usageLast {
		return dst
	}
	output := max(o.usage.Output, o.deltas)
	dst = o.appendHead(append(dst, "data: {"...))
	dst = appendInt(append(dst, `],"usage":{"prompt_tokens":`...), o.usage.Input)
	dst = appendInt(append(dst, `,"completion_tokens":`...), output)
	dst = appendInt(append(dst, `,"total_tokens":`...), o.usage.Input+output)
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
