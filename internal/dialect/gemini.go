package dialect

import (
	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// candidate is one of the answers in a Gemini stream.
type candidate struct {
	finished bool // its last frame had a finish reason
	plain    bool // an earlier frame had none
	repeats  bool // it went on after one: its finish reasons prove nothing before the end
}

// gemini is streamGenerateContent as an event stream. Older models send a finish reason with every frame, so the last
// frame's counts, and only once the upstream has ended the stream; unless earlier frames had none.
type gemini struct {
	tally
	blocked    bool // the prompt was refused: no candidates
	closed     bool // a [DONE], which is not of this protocol, came behind a finish
	lastIndex  int  // of the candidate that finished last
	candidates slots[candidate]
}

func (*gemini) ID() ID { return Gemini }

// Observe takes a frame: a GenerateContentResponse or an error.
func (g *gemini) Observe(f frame.Fields, _ []byte) Mark {
	doc, m, more := g.open(f)
	was := g.firm()
	switch {
	case !more:
	case m&Sentinel == 0:
		m |= g.response(doc)
	case g.failed, g.complete(), g.opts.EvidenceEOF, g.blind: // a translator's
		g.closed = true
		m |= Final
	}
	if !was && g.firm() && !g.failed {
		m |= Finished
	}
	return g.noted(m)
}

// response reads one frame, or a whole answer.
func (g *gemini) response(doc text) Mark {
	var m Mark
	fits := false
	for w := doc.members(); w.next(); {
		switch string(w.key) {
		case "error":
			if w.value.set() {
				return g.fail(readFault(doc))
			}
		case "candidates":
			fits = fits || w.value.array()
			for e := w.value.elements(); e.nextElement(); {
				m |= g.candidate(e.value)
			}
		case "usageMetadata":
			fits = fits || w.value.object()
			g.count(w.value)
		case "promptFeedback":
			fits = true
			if why := w.value.get("blockReason"); why.set() {
				g.blocked = true
				g.finished(why.inner(), finishRefused)
			}
		case "modelVersion", "responseId":
			fits = true
		case "complete":
			if w.value.isFalse() {
				g.inner(doc)
			}
		}
	}
	switch {
	case fits:
	case beats(doc):
		return m | beat
	case !g.data:
		return m | Foreign
	}
	return m
}

func (g *gemini) candidate(v text) Mark {
	var f [3]text
	v.pick(f[:], "index", "content", "finishReason")
	c := g.candidates.at(f[0])
	if c == nil || !v.object() {
		return 0
	}
	m := g.parts(f[1].get("parts"))
	word := f[2].inner()
	how := reason(word)
	c.repeats = c.repeats || c.finished
	c.plain = c.plain || how == finishNone
	c.finished = how != finishNone
	if !c.finished {
		return m
	}
	if c.repeats && !g.failed { // only the last reason counts
		g.ended, g.trouble = outcome.Unknown, outcome.Unknown
	}
	g.finished(word, how)
	g.lastIndex = f[0].count()
	return m
}

func (g *gemini) parts(parts text) Mark {
	var m Mark
	for e := parts.elements(); e.nextElement(); {
		var said, thought text
		other := false
		for w := e.value.members(); w.next(); {
			switch string(w.key) {
			case "text":
				said = w.value
			case "thought":
				thought = w.value
			case "functionCall", "inlineData", "fileData", "executableCode", "codeExecutionResult":
				other = other || w.value.object()
			}
		}
		switch {
		case thought.isTrue():
			m |= g.think(said)
		case said.quoted():
			m |= g.speak(said)
		case other:
			m |= g.saw(true)
		}
	}
	return m
}

// count takes usage over: the numbers are totals so far.
func (g *gemini) count(usage text) {
	var v [3]text
	usage.pick(v[:], "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
	if n, ok := v[0].number(); ok {
		g.usage.Input = n
	}
	said, ok := v[1].number()
	thought, also := v[2].number()
	if ok || also {
		g.usage.Output = said + thought
	}
}

func (g *gemini) complete() bool {
	if g.closed {
		return true
	}
	for i := range g.candidates.part {
		if !g.candidates.part[i].finished {
			return false
		}
	}
	return g.blocked || len(g.candidates.part) > 0
}

// firm says whether the answer is complete even if the upstream keeps the stream open.
func (g *gemini) firm() bool {
	if g.closed {
		return true
	}
	if g.candidates.beyond {
		return false
	}
	for i := range g.candidates.part {
		if c := &g.candidates.part[i]; !c.plain || c.repeats {
			return false
		}
	}
	return g.complete()
}

func (g *gemini) State() State {
	s := g.state(g.complete())
	s.Provisional = s.Complete && !g.firm()
	return s
}

// AppendEnding appends one frame that finishes every open candidate: clients take neither event names nor sentinels.
func (g *gemini) AppendEnding(dst []byte, e Ending) []byte {
	s := g.State()
	switch {
	case s.settled(), g.failed:
		return dst
	case g.opts.Terminal == Bare:
		return appendBare(dst, e)
	case g.opts.Terminal == Error:
		dst = append(dst, `data: {"error":{"code":`...)
		code, status := "503", "UNAVAILABLE"
		if e.late() {
			code, status = "504", "DEADLINE_EXCEEDED"
		}
		dst = append(append(append(dst, code...), `,"message":"`...), e.message()...)
		return append(append(append(dst, `","status":"`...), status...), "\"}}\n\n"...)
	}
	dst = append(dst, `data: {"candidates":[`...)
	open := 0
	for i, c := range g.candidates.part {
		if c.finished && !s.Provisional {
			continue
		}
		if open++; open > 1 {
			dst = append(dst, ',')
		}
		dst = appendCandidate(dst, g.candidates.index[i], "MAX_TOKENS")
	}
	if open == 0 {
		dst = appendCandidate(dst, 0, "MAX_TOKENS")
	}
	return closeKeys(append(dst, ']'), e, "\n\n")
}

// appendCandidate appends a candidate without text, which its SDKs demand, that ends for a reason.
func appendCandidate(dst []byte, index int, reason string) []byte {
	dst = append(dst, `{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"`...)
	dst = append(append(dst, reason...), `","index":`...)
	return append(appendInt(dst, index), '}')
}

// AppendLabel appends a frame that repeats how the answer ended. Its streams have no unit that closes them, and its
// clients take no event names.
func (g *gemini) AppendLabel(dst, unit []byte, l Label) []byte {
	if g.opts.Terminal == Bare {
		return append(l.appendBare(dst), unit...)
	}
	dst = append(dst, `data: {"candidates":[`...)
	if len(g.candidates.part) > 0 {
		dst = appendCandidate(dst, g.lastIndex, g.finishWord())
	}
	return append(l.closeKeys(append(dst, ']'), "\n\n"), unit...)
}

// finishWord is the finish reason as it was seen, if it is a plain word.
func (g *gemini) finishWord() string {
	for _, c := range []byte(g.finish) {
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_') {
			return "OTHER"
		}
	}
	if g.finish == "" {
		return "STOP"
	}
	return g.finish
}
