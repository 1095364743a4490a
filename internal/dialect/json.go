package dialect

import (
	"bytes"

	"github.com/envoy-brownout/brownout/internal/jsonedit"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// JudgeJSON judges a whole answer that is no stream. The caller bounds its size. Class is never Unknown: a status of 400
// and above is refined by the error in the body; below, the body is empty, refused, capped, an error, or fine. What is
// no JSON is no answer of a model server.
func JudgeJSON(id ID, status int, body []byte) State {
	doc, ok := parse(body)
	switch {
	case status >= 400:
		return judgeFailure(status, doc)
	case len(jsonedit.SkipSpace(body)) == 0, string(doc) == "null":
		return State{Complete: true, Class: outcome.Empty}
	case !ok:
		return unreadable(bytes.TrimSpace(body))
	}
	s := judge(id, doc).State()
	s.Provisional, s.OpenTool = false, false
	if s.Class == outcome.Unknown { // pieces of a stream in an array, without the last
		s.Class = outcome.Truncated
	}
	return s
}

// ErrorAlone says whether a document is an error with no part of an answer beside it: what clients of the dialect can
// read under a status of failure only. Where no dialect is known, an error at 200 may be the protocol (JSON-RPC).
func ErrorAlone(id ID, body []byte) bool {
	doc, ok := parse(body)
	return ok && id != Generic && isFault(doc) && !doc.get(answerMember(id)).set()
}

// answerMember is the member that every answer of a dialect has.
func answerMember(id ID) string {
	switch id {
	case Responses:
		return "output"
	case Anthropic:
		return "content"
	case Gemini:
		return "candidates"
	case Ollama:
		return "done"
	}
	return "choices"
}

// judgeFailure reads the error of an answer with a status of failure; some servers put it into an array.
func judgeFailure(status int, doc text) State {
	s := State{Complete: true, Error: true, Class: outcome.ByStatus(status, false, "")}
	if e := doc.elements(); e.nextElement() {
		doc = e.value
	}
	if doc.object() {
		s.Class = readFault(doc).outcome(status)
	}
	return s
}

// unreadable judges what is no JSON: a page of somebody else, half an answer, which ends inside a bracket, or a whole one
// that passes though no standard knows it: with a number such as NaN, or with a semicolon behind it.
func unreadable(body []byte) State {
	switch first := body[0]; {
	case first != '{' && first != '[':
		return State{Class: outcome.UpstreamError}
	case jsonedit.Open(body):
		return State{Class: outcome.Truncated}
	}
	return State{Complete: true, Class: outcome.OK}
}

// judge lets the dialect's own tracker read the answer as one unit. What is whole proves its own end.
func judge(id ID, doc text) Stream {
	t := tally{data: true, opts: Options{EvidenceEOF: true}}
	status := doc.get("status")
	switch {
	case doc.array() && id == Gemini:
		return judgePieces(doc)
	case isFault(doc):
		g := &generic{tally: t}
		g.fail(readFault(doc))
		return g
	case id == Gemini && (doc.get("candidates").array() || doc.get("promptFeedback").object() || doc.get("usageMetadata").object()):
		g := &gemini{tally: t}
		g.response(doc)
		return g
	case (id == Chat || id == Completions) && doc.get("choices").array():
		o := newOpenAI(id, t)
		o.body(doc.get("choices"), doc.get("usage"))
		return o
	case id == Responses && doc.get("output").array() && !status.is("queued") && !status.is("in_progress"):
		r := &responses{tally: t}
		r.terminal(doc, "completed")
		return r
	case id == Anthropic && doc.get("content").array():
		return judgeAnthropic(t, doc)
	case id == Ollama:
		o := &ollama{tally: t}
		if o.line(doc); o.fits {
			return o
		}
	}
	// JSON of another shape, a list of models or vectors, a job accepted for later, is an answer by being there.
	g := &generic{tally: t}
	g.saw(true)
	return g
}

func judgeAnthropic(t tally, doc text) Stream {
	a := &anthropic{tally: t}
	for e := doc.get("content").elements(); e.nextElement(); {
		switch kind := e.value.get("type"); {
		case kind.is("text"):
			a.speak(e.value.get("text"))
		case kind.is("thinking"), kind.is("redacted_thinking"):
			a.saw(false)
		default:
			a.saw(true)
		}
	}
	a.count(doc.get("usage"))
	a.stopReason(doc.get("stop_reason").inner())
	return a
}

// judgePieces reads the array that a Gemini stream without events is.
func judgePieces(doc text) Stream {
	g := &gemini{tally: tally{data: true}}
	for e := doc.elements(); e.nextElement(); {
		g.response(e.value)
	}
	return g
}
