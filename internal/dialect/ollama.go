package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/jsonedit"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// ollama is /api/chat or /api/generate: lines of JSON, the last of which says done. Others have such paths too: a stream
// of which no line looks like Ollama is not judged, and nothing of ours is put behind it.
type ollama struct {
	tally
	done     bool
	generate bool // the text lies in response instead of in message
	fits     bool // a line looked like Ollama's
	foreign  bool // a line did not, before any that did
	spoke    bool // the last line brought words
	lines    int  // lines with JSON
	model    text
	created  text // of the last line
}

func (*ollama) ID() ID { return Ollama }

// Observe takes a line. A done line whose reason is empty reports a lost connection, and is withheld.
func (o *ollama) Observe(_ frame.Fields, line []byte) Mark {
	doc, ok := parse(line)
	if !ok {
		if len(jsonedit.SkipSpace(line)) == 0 {
			return 0
		}
		o.data = true
		return Data | o.strange()
	}
	o.data = true
	o.lines++
	m := Data | o.line(doc)
	o.spoke = m&Content != 0
	return m | o.strange()
}

// strange notes a line in front of which none looked like Ollama's, and which does not either. Whatever it is, it counts
// as content.
func (o *ollama) strange() Mark {
	if o.fits || o.opts.Pinned {
		return 0
	}
	o.foreign = true
	return o.saw(true)
}

func (o *ollama) line(doc text) Mark {
	var m Mark
	var done, why, oops text
	named, texted := false, false
	for w := doc.members(); w.next(); {
		switch string(w.key) {
		case "error":
			oops = w.value
		case "model":
			named = w.value.quoted()
			hold(&o.model, w.value, maxHead)
		case "created_at":
			if w.value.quoted() && len(w.value) <= maxReason {
				o.created = append(o.created[:0], w.value...)
			}
		case "message":
			texted = texted || w.value.object()
			m |= readMessage(&o.tally, &choice{}, w.value)
		case "response":
			texted = texted || w.value.quoted()
			o.generate = true
			m |= o.speak(w.value)
		case "thinking":
			m |= o.think(w.value)
		case "complete":
			if w.value.isFalse() {
				o.inner(doc)
			}
		case "done":
			done = w.value
		case "done_reason":
			why = w.value
		case "prompt_eval_count":
			o.usage.Input = w.value.count()
		case "eval_count":
			o.usage.Output = w.value.count()
		}
	}
	flagged := done.isTrue() || done.isFalse()
	o.fits = o.fits || oops.set() || named && texted || flagged && (named || texted || why != nil)
	switch {
	case oops.set():
		return m | o.fail(readFault(doc))
	case done.isTrue() && !o.done:
		return m | o.stop(why)
	}
	return m
}

// stop judges a done line. Old servers give no reason at all; an empty one is none of theirs.
func (o *ollama) stop(why text) Mark {
	how := reason(why.inner())
	switch {
	case why.quoted() && len(why.inner()) == 0:
		o.trouble = outcome.First(o.trouble, outcome.Evicted)
		return o.abandon()
	case how.aborted():
		o.finished(why.inner(), how)
		return o.abandon()
	case how == finishNone:
		how = finishDone
	}
	o.done = true
	o.finished(why.inner(), how)
	if o.failed || o.abandoned {
		return 0
	}
	return Finished | Final | o.closing()
}

func (o *ollama) State() State {
	if o.foreign && !o.fits {
		return State{Complete: true, Provisional: true, Content: true, Foreign: true}
	}
	return o.state(o.done)
}

// AppendEnding appends a done line. Bytes of an event stream would be an error to every client, so Bare is the same.
func (o *ollama) AppendEnding(dst []byte, e Ending) []byte {
	switch s := o.State(); {
	case s.settled(), o.failed, s.Foreign:
		return dst
	case o.opts.Terminal == Error:
		return append(append(append(dst, `{"error":"`...), e.message()...), "\"}\n"...)
	}
	return closeKeys(o.appendDone(dst, "length"), e, "\n")
}

// appendDone appends a done line without the brace that closes it.
func (o *ollama) appendDone(dst []byte, reason string) []byte {
	dst = appendOr(append(dst, `{"model":`...), o.model, `""`)
	dst = appendOr(append(dst, `,"created_at":`...), o.created, `"1970-01-01T00:00:00Z"`)
	if o.generate {
		dst = append(dst, `,"response":""`...)
	} else {
		dst = append(dst, `,"message":{"role":"assistant","content":""}`...)
	}
	return append(append(append(dst, `,"done":true,"done_reason":"`...), reason...), '"')
}

// AppendLabel puts the label into the done line. One that is the first line is perhaps no stream but a document, so it
// gets the label of a document too.
func (o *ollama) AppendLabel(dst, unit []byte, l Label) []byte {
	if unit == nil {
		return l.closeKeys(o.appendDone(dst, "stop"), "\n")
	}
	members := l.members()
	if o.lines == 1 {
		members = append(members, jsonedit.Member{Key: "meta", Value: l.AppendMeta(nil)})
	}
	line := bytes.TrimRight(unit, "\r\n")
	out, err := jsonedit.InsertMembers(dst, line, members...)
	if err != nil {
		return append(dst, unit...)
	}
	return append(out, unit[len(line):]...)
}
