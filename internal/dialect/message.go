package dialect

// readMessage reads what a delta or a whole message holds.
func readMessage(t *tally, c *choice, message text) Mark {
	var m Mark
	details := false
	for w := message.members(); w.next(); {
		switch string(w.key) {
		case "content":
			m |= readContent(t, w.value)
		case "reasoning_content", "reasoning", "thinking":
			m |= t.think(w.value)
		case "reasoning_details": // OpenRouter; mostly beside the same thoughts as text
			details = w.value.array() && len(w.value) > 2
		case "refusal":
			m |= t.refuse(w.value)
		case "audio", "images":
			if w.value.set() && len(w.value) > 2 {
				m |= t.saw(true)
			}
		case "tool_calls", "function_call":
			if w.value.set() && len(w.value) > 2 {
				c.tool = true
				m |= t.saw(true)
			}
		}
	}
	if details && m&Content == 0 {
		m |= t.saw(false)
	}
	return m
}

// readContent reads content: text, or parts of which some are thoughts (Mistral) or refusals.
func readContent(t *tally, v text) Mark {
	m := t.speak(v)
	for e := v.elements(); e.nextElement(); {
		part := e.value
		switch kind := part.get("type"); {
		case kind.is("thinking"), kind.is("reasoning"):
			m |= t.think(part.get("thinking"))
		case kind.is("refusal"):
			m |= t.refuse(part.get("refusal"))
		case part.get("text").quoted():
			m |= t.speak(part.get("text"))
		case part.object():
			m |= t.saw(true) // an image, a sound, a reference
		}
	}
	return m
}
