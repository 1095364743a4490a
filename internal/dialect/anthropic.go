package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/frame"
)

// block is a part of an Anthropic message.
type block struct {
	open bool
	tool bool
}

// anthropic is a stream of the Messages API. It is complete when a message_stop follows a stop reason.
type anthropic struct {
	tally
	begun  bool // message_start
	reason bool // a stop reason that is no abort
	done   bool // message_stop
	hidden bool // an error came without the event name by which clients know it
	blocks slots[block]
}

func (*anthropic) ID() ID { return Anthropic }

// Observe takes an event. Its type is in the data; the name beside it only matters for errors.
func (a *anthropic) Observe(f frame.Fields, _ []byte) Mark {
	doc, m, more := a.open(f)
	switch {
	case !more:
	case m&Sentinel != 0: // not of this protocol, but some servers end everything with it
		switch {
		case a.done || a.failed:
			m |= Final
		case a.opts.EvidenceEOF, a.blind && !a.abandoned:
			a.done = true
			m |= Finished | Final | a.closing()
		default:
			m |= Withhold
		}
	default:
		m |= a.event(doc, f.Name)
	}
	return a.noted(m)
}

func (a *anthropic) event(doc text, name []byte) Mark {
	var v [3]text
	doc.pick(v[:], "type", "delta", "usage")
	kind, delta, usage := v[0].inner(), v[1], v[2]
	switch string(kind) {
	case "message_start":
		a.begun = true
		a.count(doc.get("message").get("usage"))
	case "content_block_start":
		return a.start(doc)
	case "content_block_delta":
		return a.delta(delta)
	case "content_block_stop":
		if b := a.blocks.at(doc.get("index")); b != nil {
			b.open = false
		}
	case "message_delta":
		a.count(usage)
		return a.stopReason(delta.get("stop_reason").inner())
	case "message_stop":
		return a.stop()
	case "error":
		if !a.failed {
			a.hidden = string(name) != "error"
		}
		return a.fail(readFault(doc))
	case "ping", "keepalive", "keep-alive", "heartbeat":
		if beats(doc) {
			return beat
		}
		a.inner(doc)
	default:
		if doc.get("error").set() {
			a.hidden = !a.failed || a.hidden
			return a.fail(readFault(doc))
		}
		if !a.data {
			return Foreign
		}
	}
	return 0
}

// count takes usage over: the numbers are totals so far. Cached input is input.
func (a *anthropic) count(usage text) {
	input, some := 0, false
	for m := usage.members(); m.next(); {
		n, ok := m.value.number()
		switch string(m.key) {
		case "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens":
			input, some = input+n, some || ok
		case "output_tokens":
			if ok {
				a.usage.Output = n
			}
		}
	}
	if some {
		a.usage.Input = max(a.usage.Input, input)
	}
}

func (a *anthropic) start(doc text) Mark {
	content := doc.get("content_block")
	kind := content.get("type").inner()
	tool := bytes.HasSuffix(kind, []byte("tool_use"))
	if b := a.blocks.at(doc.get("index")); b != nil {
		*b = block{open: true, tool: tool}
	}
	switch string(kind) {
	case "text":
		return a.speak(content.get("text"))
	case "thinking":
		return a.think(content.get("thinking"))
	case "redacted_thinking":
		return a.saw(false)
	}
	return a.saw(true) // a tool call, a result of a tool of the server
}

func (a *anthropic) delta(delta text) Mark {
	switch string(delta.get("type").inner()) {
	case "text_delta":
		return a.speak(delta.get("text"))
	case "thinking_delta":
		return a.think(delta.get("thinking"))
	case "input_json_delta":
		if delta.get("partial_json").set() {
			return a.saw(true)
		}
	}
	return 0
}

func (a *anthropic) stopReason(word []byte) Mark {
	how := reason(word)
	switch {
	case how == finishNone:
		return 0
	case how.aborted():
		a.finished(word, how)
		return a.abandon()
	}
	a.reason = true
	a.finished(word, how)
	return 0
}

// stop judges a message_stop: without a stop reason before it, it is withheld.
func (a *anthropic) stop() Mark {
	if a.done || a.failed {
		return 0
	}
	if a.abandoned || !a.reason && !a.opts.EvidenceEOF && !a.blind {
		return Withhold
	}
	a.done = true
	return Finished | Final | a.closing()
}

func (a *anthropic) State() State {
	s := a.state(a.done)
	s.OpenTool = a.openTool()
	return s
}

func (a *anthropic) openTool() bool {
	for i := range a.blocks.part {
		if b := &a.blocks.part[i]; b.open && b.tool && !a.done {
			return true
		}
	}
	return false
}

// AppendEnding closes the open blocks and stops the message as one cut at a length limit. The frame of the contract is
// a ping, which is inert in all clients. A message that has not begun cannot be stopped: then it is an error.
func (a *anthropic) AppendEnding(dst []byte, e Ending) []byte {
	s := a.State()
	switch {
	case s.settled(), a.failed && !a.hidden:
		return dst
	case a.opts.Terminal == Bare && !a.hidden:
		return appendBare(dst, e)
	case a.opts.Terminal == Error, s.OpenTool, !a.begun, a.blocks.beyond, a.hidden:
		dst = append(dst, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\""...)
		return append(append(dst, e.message()...), "\"}}\n\n"...)
	}
	for i, b := range a.blocks.part {
		if b.open {
			dst = append(dst, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
			dst = append(appendInt(dst, a.blocks.index[i]), "}\n\n"...)
		}
	}
	dst = append(dst, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":"...)
	dst = closeKeys(append(appendInt(dst, max(a.usage.Output, a.deltas)), '}'), e, "\n\n")
	dst = closeKeys(append(dst, "event: done\ndata: {\"type\":\"ping\""...), e, "\n\n")
	return append(dst, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// AppendLabel puts a ping that carries the label in front of message_stop.
func (a *anthropic) AppendLabel(dst, unit []byte, l Label) []byte {
	if a.opts.Terminal == Bare {
		return append(l.appendBare(dst), unit...)
	}
	dst = l.closeKeys(append(dst, "event: done\ndata: {\"type\":\"ping\""...), "\n\n")
	return append(dst, unit...)
}
