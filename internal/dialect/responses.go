package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/jsonedit"
)

// Bounds on what is remembered of a response, in bytes. Above them our ending repeats less of it.
const (
	maxResponse = 256 << 10 // the response object of response.created
	maxOutput   = 1 << 20   // all output items together
)

// item is an element of a response's output.
type item struct {
	kind  byte   // what the item is, see itemKind
	open  bool   // begun and not done
	ident text   // raw, of the item
	raw   []byte // the whole item, once done
	said  []byte // the text so far, as escaped on the wire
}

// The kinds of item.
const (
	itemOther   byte = iota
	itemMessage      // text
	itemTool         // a call of the caller's tools: its arguments must be whole
)

// responses is a stream of the Responses API. Its terminal events are response.completed, .incomplete and .failed.
type responses struct {
	tally
	done       bool
	last       int    // sequence number
	seen       bool   // … of which there was one
	response   []byte // as it was announced
	background bool   // it is a job that runs on whoever listens
	items      slots[item]
	size       int // bytes kept in items
}

func (*responses) ID() ID { return Responses }

// Observe takes an event. Its type is in the data, and in the event's name alike.
func (r *responses) Observe(f frame.Fields, _ []byte) Mark {
	doc, m, more := r.open(f)
	switch {
	case !more:
	case m&Sentinel != 0: // not of this protocol, but some servers end everything with it
		switch {
		case r.done || r.failed:
			m |= Final
		case r.opts.EvidenceEOF, r.blind:
			r.done = true
			m |= Finished | Final | r.closing()
		default:
			m |= Withhold
		}
	default:
		m |= r.event(doc, f.Name)
	}
	return r.noted(m)
}

func (r *responses) event(doc text, name []byte) Mark {
	var v [5]text
	doc.pick(v[:], "type", "sequence_number", "output_index", "delta", "item_id")
	kind := v[0].inner()
	if kind == nil {
		kind = name
	}
	event, ours := bytes.CutPrefix(kind, []byte("response."))
	if !ours {
		switch {
		case string(kind) == "error", doc.get("error").set():
			return r.fail(readFault(doc))
		case beats(doc):
			return beat
		case !r.data && !isPing(kind):
			return Foreign
		}
		return 0
	}
	if n, ok := v[1].number(); ok {
		r.last, r.seen = n, true
	}
	switch string(event) {
	case "output_text.delta":
		r.accumulate(v[2], v[3].inner(), v[4])
		return r.speak(v[3])
	case "output_text.done": // some servers send the text only here
		said := doc.get("text")
		if it := r.items.at(v[2]); it != nil && len(it.said) == 0 {
			r.accumulate(v[2], said.inner(), v[4])
		}
		return r.speak(said)
	case "created", "queued", "in_progress":
		r.announce(doc.get("response"))
		return 0
	case "completed", "incomplete", "failed", "cancelled":
		return r.terminal(doc.get("response"), string(event))
	}
	return r.progress(doc, event)
}

// announce keeps what a response says of itself at its beginning, or of one that is too large what clients demand.
func (r *responses) announce(response text) {
	if response.get("background").isTrue() {
		r.background = true
	}
	if r.response != nil || !response.object() {
		return
	}
	if r.response = response.keep(maxResponse); r.response != nil {
		return
	}
	var v [4]text
	response.pick(v[:], "id", "created_at", "model", "object")
	r.response = []byte{'{'}
	for i, k := range []string{"id", "created_at", "model", "object"} {
		if kept := v[i].keep(maxHead); kept != nil {
			if len(r.response) > 1 {
				r.response = append(r.response, ',')
			}
			r.response = append(append(jsonedit.AppendQuoted(r.response, k), ':'), kept...)
		}
	}
	r.response = append(r.response, '}')
}

// terminal reads a terminal event. The status in the response has the last word.
func (r *responses) terminal(response text, event string) Mark {
	readUsage(&r.usage, response.get("usage"), "input_tokens", "output_tokens")
	if r.done || r.failed {
		return 0
	}
	m := r.output(response.get("output"))
	if failed := r.status(response, event); failed != 0 {
		return m | failed
	}
	r.done = true
	return m | Finished | Final | r.closing()
}

// status judges the status of a whole response; Failed if it is a failure. fallback stands in for a status left out.
func (r *responses) status(response text, fallback string) Mark {
	word := string(response.get("status").inner())
	if word == "" || word == "in_progress" {
		word = fallback
	}
	switch {
	case fallback == "failed", word == "failed":
		return r.fail(readFault(response))
	case fallback == "cancelled", word == "cancelled":
		r.finished([]byte(word), finishEvicted)
		r.failed = true
		return Failed | Final
	case fallback == "incomplete", word == "incomplete":
		why := response.get("incomplete_details").get("reason").inner()
		how := reason(why)
		if how == finishNone || how == finishDone {
			how = finishCapped
		}
		r.finished(why, how)
	default:
		r.finished([]byte(word), finishDone)
	}
	return 0
}

// output reads whole output, unless its pieces have been seen.
func (r *responses) output(output text) (m Mark) {
	if r.visible {
		return 0
	}
	for e := output.elements(); e.nextElement(); {
		m |= r.whole(e.value)
	}
	return m
}

// whole reads one whole item.
func (r *responses) whole(v text) Mark {
	var m Mark
	switch kind := v.get("type"); {
	case kind.is("message"):
		for e := v.get("content").elements(); e.nextElement(); {
			m |= r.speak(e.value.get("text")) | r.refuse(e.value.get("refusal"))
		}
	case kind.is("reasoning"):
		if len(v.get("summary")) > 2 || len(v.get("content")) > 2 {
			m |= r.saw(false)
		}
	case kind.quoted():
		m |= r.saw(true) // a tool call, an image
	}
	return m
}

// progress reads an event inside a response.
func (r *responses) progress(doc text, event []byte) Mark {
	switch string(event) {
	case "output_item.added":
		return r.add(doc)
	case "output_item.done":
		return r.close(doc)
	case "refusal.delta":
		return r.refuse(doc.get("delta"))
	case "function_call_arguments.done", "custom_tool_call_input.done", "mcp_call_arguments.done":
		if it := r.items.at(doc.get("output_index")); it != nil {
			it.open = false
		}
		return 0
	}
	if !bytes.HasSuffix(event, []byte(".delta")) && !bytes.HasSuffix(event, []byte(".partial_image")) {
		return 0
	}
	if bytes.HasPrefix(event, []byte("reasoning")) {
		return r.think(doc.get("delta"))
	}
	return r.saw(true) // arguments, sound, code, an image
}

// itemKind says what an item is by its type.
func itemKind(v text) byte {
	switch string(v.get("type").inner()) {
	case "message":
		return itemMessage
	case "function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_call":
		return itemTool
	}
	return itemOther
}

func (r *responses) add(doc text) Mark {
	it, v := r.items.at(doc.get("output_index")), doc.get("item")
	if it == nil {
		return 0
	}
	r.size -= len(it.raw) + len(it.said)
	*it = item{kind: itemKind(v), open: true, ident: v.get("id").keep(maxHead)}
	if it.kind == itemTool {
		return r.saw(true)
	}
	return 0
}

// close notes that an item is whole. Where no piece of it came before, it is content now.
func (r *responses) close(doc text) Mark {
	it, v := r.items.at(doc.get("output_index")), doc.get("item")
	if it == nil {
		return 0
	}
	it.open = false
	r.size -= len(it.raw) + len(it.said)
	it.said = nil
	if it.raw = nil; v.object() {
		it.raw = v.keep(maxOutput - r.size)
		r.size += len(it.raw)
	}
	if !r.visible {
		return r.whole(v)
	}
	return 0
}

// accumulate keeps a piece of text for our ending, undecoded: escapes stay as they are.
func (r *responses) accumulate(index text, piece []byte, ident text) {
	it := r.items.at(index)
	if it == nil || it.raw != nil || r.size+len(piece) > maxOutput {
		return
	}
	it.kind = itemMessage
	if it.ident == nil {
		it.ident = ident.keep(maxHead)
	}
	it.said = append(it.said, piece...)
	r.size += len(piece)
}

func (r *responses) openTool() bool {
	for i := range r.items.part {
		if it := &r.items.part[i]; it.open && it.kind == itemTool && !r.done {
			return true
		}
	}
	return false
}

func (r *responses) State() State {
	s := r.state(r.done)
	s.OpenTool = r.openTool()
	return s
}

// AppendEnding appends response.incomplete with the response as it was announced and the output so far. One that was
// not announced to this client, or runs on in the background, is not incomplete: then it is an error of the stream.
func (r *responses) AppendEnding(dst []byte, e Ending) []byte {
	s := r.State()
	switch {
	case s.settled(), r.failed:
		return dst
	case r.opts.Terminal == Bare:
		return appendBare(dst, e)
	case r.opts.Terminal == Error, s.OpenTool, r.response == nil, r.background, r.items.beyond:
		dst = append(dst, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":"...)
		dst = appendInt(dst, r.next())
		dst = append(append(dst, `,"error":{"type":"server_error","code":"`...), e.Reason.String()...)
		return append(append(append(dst, `","message":"`...), e.message()...), "\",\"param\":null}}\n\n"...)
	}
	dst = append(dst, "event: done\ndata: {\"type\":\"response.incomplete\",\"sequence_number\":"...)
	dst = append(appendInt(dst, r.next()), `,"response":{`...)
	dst = r.appendResponse(dst)
	dst = append(dst, `"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[`...)
	dst = r.appendOutput(dst)
	return closeKeys(append(dst, `],"usage":null}`...), e, "\n\n")
}

func (r *responses) next() int {
	if !r.seen {
		return 0
	}
	return r.last + 1
}

// appendResponse appends what the response said of itself, but for what we say.
func (r *responses) appendResponse(dst []byte) []byte {
	for m := text(r.response).members(); m.next(); {
		switch string(m.key) {
		case "status", "incomplete_details", "output", "usage":
			continue
		}
		dst = append(jsonedit.AppendQuoted(dst, string(m.key)), ':')
		dst = append(append(dst, m.value...), ',')
	}
	return dst
}

// appendOutput appends the items so far: whole ones as they came, messages with the text they have.
func (r *responses) appendOutput(dst []byte) []byte {
	some := false
	for i := range r.items.part {
		it := &r.items.part[i]
		if it.raw == nil && (it.kind != itemMessage || len(it.said) == 0) {
			continue
		}
		if some {
			dst = append(dst, ',')
		}
		some = true
		if it.raw != nil {
			dst = append(dst, it.raw...)
			continue
		}
		dst = appendOr(append(dst, `{"id":`...), it.ident, `"brownout"`)
		dst = append(dst, `,"type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"`...)
		dst = append(append(dst, it.said...), `"}]}`...)
	}
	return dst
}

// AppendLabel puts the label into the terminal event. Where there is none, or it takes no label, an event in front says
// it, which means no more to clients than those that keep a connection alive.
func (r *responses) AppendLabel(dst, unit []byte, l Label) []byte {
	if r.opts.Terminal == Bare {
		return append(l.appendBare(dst), unit...)
	}
	out, ok, present := labelEvent(dst, unit, l)
	switch {
	case ok:
		return out
	case present:
		return append(dst, unit...)
	}
	dst = append(dst, "event: done\ndata: {\"type\":\"keepalive\",\"sequence_number\":"...)
	return append(l.closeKeys(appendInt(dst, r.next()), "\n\n"), unit...)
}
