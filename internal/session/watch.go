package session

import (
	"net/http"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/answer"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// watchAnswer begins to watch an answer with a body. Its headers wait for the first unit, or for the whole of a
// document, unless there is nothing to wait for.
func (s *Session) watchAnswer(dst []Effect, now time.Time) []Effect {
	kind, id := s.kind()
	s.fin.Dialect = id
	s.body = answer.New(answer.Options{
		Kind: kind, Dialect: id, Pinned: s.watch.Pinned, Guess: !s.watch.Pinned && !s.request.Known, Stream: s.streamOptions(), Status: s.header.Status,
		Label: s.bodyLabel(), Keep: s.admission.Keep, Ambiguous: kind == answer.Stream && mediaType(s.header.ContentType) == "application/json",
	})
	s.state = holding
	s.startTimers(now, kind)
	if kind == answer.Opaque || (kind == answer.Stream && !s.watch.Hold) {
		return s.release(dst, now)
	}
	return dst
}

func (s *Session) streamOptions() dialect.Options {
	o := s.watch.Stream
	o.Mistral = o.Mistral || s.request.Mistral
	return o
}

// startTimers starts the timers of an answer by how its body can be read. Of one that cannot be read the headers stand for
// its first content, and like a stream it is bounded by what the caller stated, not by the default: nobody can tell how
// long it is, and it could only be broken off.
func (s *Session) startTimers(now time.Time, kind answer.Kind) {
	switch {
	case s.watch.Pass:
		s.timers.answer(now, s.deadline, isStream(s.header.ContentType), nil)
	case kind == answer.Opaque:
		s.timers.answer(now, s.deadline, true, s.watch)
		s.timers.content()
	default:
		s.timers.answer(now, s.deadline, kind == answer.Stream, s.watch)
	}
}

// kind is how the answer's body can be read, and in which dialect. Encoded bodies and media types we do not know pass.
func (s *Session) kind() (answer.Kind, dialect.ID) {
	id := s.request.Dialect
	if s.watch.Pinned {
		id = s.watch.Dialect
	}
	if s.header.Encoded || s.header.FromEnvoy || s.watch.Pass || s.header.Status == http.StatusPartialContent {
		return answer.Opaque, id
	}
	media := mediaType(s.header.ContentType)
	switch {
	case media == "text/event-stream" && s.header.Status < 300:
		if id.NDJSON() { // events where lines were expected
			id = dialect.Generic
		}
		return answer.Stream, id
	case isLines(media) && s.header.Status < 300 && id.NDJSON():
		return answer.Stream, id
	case isLines(media) && media != "application/json" && s.header.Status < 300 && !s.request.Known && !s.watch.Pinned:
		return answer.Stream, dialect.Ollama // if they are its lines; others pass unjudged
	case s.request.Array && s.header.Status < 300:
		return answer.Opaque, id
	case media == "application/stream+json": // documents, one behind the other
		return answer.Opaque, id
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return answer.JSON, id
	}
	return answer.Opaque, id
}

func (s *Session) watchBody(dst []Effect, now time.Time, ev Body) []Effect {
	fed := s.body.Feed(ev.Data)
	s.note(now, fed.Marks)
	if s.state == holding && s.body.FirstError() != nil {
		return s.fallError(dst, now)
	}
	if s.state == holding && fed.Ready && !fed.Lie {
		dst = s.release(dst, now)
	}
	switch {
	case fed.Lie:
		why, o := s.body.Truth()
		return s.endWith(dst, now, fed.Out, why, o)
	case ev.End:
		return s.endOfBody(dst, now, fed.Out, bodyEnd{clean: true, last: true})
	case len(fed.Out) > 0:
		s.fin.Bytes += int64(len(fed.Out))
		return append(dst, SendBody{Data: fed.Out})
	}
	return dst
}

// note takes what the units of a piece were.
func (s *Session) note(now time.Time, m dialect.Mark) {
	if m&dialect.Data == 0 {
		return
	}
	s.timers.data(now)
	if s.body.Kind() != answer.Stream {
		return
	}
	if m&dialect.Content != 0 && s.fin.ContentAt.IsZero() {
		s.fin.ContentAt = now
		s.timers.content()
	}
	switch over := s.body.Over(); {
	case !over:
		s.timers.more()
	case s.body.LastWord(m):
		s.closing = true
		s.timers.last(now)
	}
}

// bodyEnd is how the upstream's body came to its end.
type bodyEnd struct {
	clean bool // by itself; otherwise it was cut
	last  bool // nothing is behind it; otherwise trailers are
}

// endOfBody is the upstream's end of the body. pending goes on before what ends the answer.
func (s *Session) endOfBody(dst []Effect, now time.Time, pending []byte, end bodyEnd) []Effect {
	rest, complete := s.body.Finish(end.clean)
	if s.state == holding && s.body.FirstError() != nil {
		return s.fallError(dst, now)
	}
	pending = append(pending[:len(pending):len(pending)], rest...)
	if !complete {
		return s.incomplete(dst, now, pending, end)
	}
	s.conclude()
	if why := degradedBy(s.verdict); s.state == holding && s.body.Kind() == answer.JSON && why != outcome.DegradedNone &&
		(why != outcome.DegradedEmpty || s.admission.ReplaceEmpty) {
		return s.fall(dst, now, failure{why: why, outcome: s.verdict, pending: pending, last: end.last})
	}
	return s.endComplete(dst, now, pending, end.last)
}

// endComplete lets the end of a whole answer go. last: nothing is behind it.
func (s *Session) endComplete(dst []Effect, now time.Time, pending []byte, last bool) []Effect {
	if s.state == holding {
		dst = s.release(dst, now)
	}
	if s.body.State().Error {
		ending, _ := s.body.End(dialect.Ending{Tier: s.fin.Tier}) // what the dialect still lacks after an error
		pending = append(pending, ending...)
	}
	if last || len(pending) > 0 {
		dst = append(dst, SendBody{Data: pending, End: last})
	}
	if last {
		return s.finish(dst, s.verdict)
	}
	return dst
}

// bodyLabel is what the body of an answer of a lower tier says of itself; nil: nothing.
func (s *Session) bodyLabel() *dialect.Label {
	if s.fin.Ran == outcome.DegradedNone || s.header.Status >= 400 || s.header.FromEnvoy || s.watch.Pass {
		return nil
	}
	return &dialect.Label{Tier: s.fin.Tier, Reason: s.fin.Ran, DeadlineMs: s.deadline.Budget.Milliseconds()}
}

// conclude turns what the body says into the outcome.
func (s *Session) conclude() {
	st := s.body.State()
	s.fin.Kept, s.fin.Whole = s.body.Kept()
	s.fin.Unread = s.body.Kind() == answer.Opaque
	switch s.body.Kind() {
	case answer.Stream:
		s.verdict = refine(s.verdict, st.Class)
	case answer.JSON:
		if s.body.Collected() {
			s.verdict = refine(s.verdict, st.Class)
		}
	}
}

// refine replaces what the status alone said by what the body says.
func refine(byStatus, byBody outcome.Outcome) outcome.Outcome {
	switch {
	case byBody == outcome.Unknown || (byBody == outcome.OK && byStatus == outcome.DegradedOK):
		return byStatus
	case byStatus == outcome.OK || byStatus == outcome.DegradedOK:
		return byBody
	}
	return outcome.First(byStatus, byBody)
}

// incomplete ends an answer whose upstream ended it without evidence, or died.
func (s *Session) incomplete(dst []Effect, now time.Time, pending []byte, end bodyEnd) []Effect {
	s.fin.Cut, s.fin.CutSealed = !end.clean, !end.clean
	if s.state == holding {
		return s.fallCut(dst, now)
	}
	ending, honest := s.ending(outcome.DegradedUpstreamTruncated)
	if !honest {
		return s.finish(append(dst, Reset{}), outcome.Truncated)
	}
	s.verdict = outcome.Truncated
	dst = append(dst, SendBody{Data: append(pending, ending...), End: end.last})
	if end.last {
		return s.finish(dst, s.verdict)
	}
	return dst
}

// watchTrailers takes the trailers of a watched answer: its body is over, by itself or, if the seal says so, by a cut.
func (s *Session) watchTrailers(dst []Effect, now time.Time, ev ResponseTrailers) []Effect {
	if ev.Cut && s.body.Kind() != answer.Stream && !s.wholeDocument() {
		s.fin.Cut, s.fin.CutSealed = true, true
		if s.state == holding {
			return s.fallCut(dst, now)
		}
		return s.finish(append(dst, Reset{}), outcome.Truncated)
	}
	dst = s.endOfBody(dst, now, nil, bodyEnd{clean: !ev.Cut})
	if s.state == ended || s.state == falling {
		return dst
	}
	return s.finish(append(dst, ContinueTrailers{}), s.verdict)
}

// wholeDocument says whether a JSON answer that was cut is whole all the same.
func (s *Session) wholeDocument() bool { return s.body.Collected() && s.body.Whole() }

// endWith ends a watched answer ourselves, before the upstream does. Headers that are still held go first.
func (s *Session) endWith(dst []Effect, now time.Time, pending []byte, why outcome.Degraded, o outcome.Outcome) []Effect {
	if s.state == holding {
		dst = s.release(dst, now)
	}
	ending, honest := s.ending(why)
	if !honest {
		return s.finish(s.cancel(append(dst, Reset{})), o)
	}
	dst = append(dst, SendBody{Data: append(pending[:len(pending):len(pending)], ending...), End: true})
	return s.finish(s.cancel(dst), o)
}

// ending is our terminal frame at this point of the stream; false where none can stand.
func (s *Session) ending(why outcome.Degraded) ([]byte, bool) {
	b, ok := s.body.End(dialect.Ending{Tier: s.fin.Tier, Reason: why})
	if ok {
		s.fin.Terminal, s.fin.Dialect = why, s.body.Dialect()
		s.fin.Degraded = why
	}
	return b, ok
}

// cancel ends the upstream's work through the seal, where there is one.
func (s *Session) cancel(dst []Effect) []Effect {
	if s.watch != nil && s.watch.Sealed {
		return append(dst, CancelUpstream{})
	}
	return dst
}

// onWake ends what has come to its time. Before headers have gone on it answers 504; in a stream it writes an ending;
// where none can stand it resets. An answer that is not watched is only counted.
func (s *Session) onWake(dst []Effect, now time.Time, ev Wake) []Effect {
	why, linger, due := s.timers.due(now)
	if !due {
		return dst
	}
	if why == outcome.DegradedStalled && ev.Blocked {
		s.timers.data(now)
		return dst
	}
	o := outcome.Deadline
	if why == outcome.DegradedStalled {
		o = outcome.Stalled
	}
	switch {
	case s.state == uploading:
		return s.onRefused(dst, Refused{Route: s.fin.Route, Reason: outcome.ShedDeadlineExpired, Status: s.expired, RetryAfter: time.Second})
	case s.state == admitted:
		return s.fallLate(dst, now, why, o)
	case s.body == nil, s.watch.Pass:
		s.timers = timers{}
		s.verdict = outcome.First(s.verdict, o)
		return dst
	case linger, s.state == answered && s.body.Over():
		return s.endLinger(dst, now)
	case s.state == holding:
		return s.fallLate(dst, now, why, o)
	}
	return s.endWith(dst, now, nil, why, o)
}

// endLinger ends a stream that is complete but stays open. The seal ends it without a byte; Envoy alone takes no end
// without bytes, so a line end goes with it that every reader of the dialect skips.
func (s *Session) endLinger(dst []Effect, now time.Time) []Effect {
	s.conclude()
	if s.watch.Sealed && !s.asked {
		s.asked = true
		s.timers.more()
		s.timers.last(now) // should the seal not have it any more
		return append(dst, FinishUpstream{})
	}
	filler := s.body.LabelEnd()
	if s.body.State().Error {
		filler, _ = s.body.End(dialect.Ending{Tier: s.fin.Tier})
	}
	if len(filler) == 0 {
		filler = []byte(s.body.Dialect().Filler())
	}
	return s.finish(append(dst, SendBody{Data: filler, End: true}), s.verdict)
}

// watchClosed: the exchange is torn down in the middle of a watched answer. After complete evidence that is how clients
// hang up. A sealed upstream that dies says so, so without that it was the caller; without a seal nobody can tell.
func (s *Session) watchClosed(dst []Effect) []Effect {
	switch {
	case s.watch.Pass:
		return s.finish(dst, s.verdict)
	case s.state == answered && s.body.Over():
		s.conclude()
		if !s.closing { // more may have been on its way: usage, a sentinel
			s.fin.Kept, s.fin.Whole = nil, false
		}
		return s.finish(dst, s.verdict)
	case s.watch.Sealed && !s.cut:
		return s.finish(dst, outcome.ClientAborted)
	}
	s.fin.Cut, s.fin.CutSealed = true, s.watch.Sealed
	return s.finish(dst, outcome.Truncated)
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

func isLines(media string) bool {
	return media == "application/x-ndjson" || media == "application/jsonl" || media == "application/json"
}

// isStream says whether an answer comes piece by piece, so that its headers are not its end.
func isStream(contentType string) bool {
	switch mediaType(contentType) {
	case "text/event-stream", "application/x-ndjson", "application/jsonl":
		return true
	}
	return false
}
