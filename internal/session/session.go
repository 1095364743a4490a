package session

import (
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/answer"
	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// timeoutMargin is added to the wait announced to Envoy, so that our answer arrives before its timeout speaks.
const timeoutMargin = 250 * time.Millisecond

type state uint8

const (
	start state = iota
	asking
	uploading
	parked
	admitted
	holding
	falling
	answered
	ended
)

var stateNames = [...]string{"start", "asking", "uploading", "parked", "admitted", "holding", "falling", "answered", "ended"}

func (s state) String() string { return stateNames[s] }

// Session is one request. The zero value is ready for RequestHeaders.
type Session struct {
	state    state
	extended bool
	held     bool // a slot is held
	passing  bool // ended, and what follows goes on untouched
	duplex   bool // …the answer's body piece by piece
	buffered bool // the request's body was asked for
	deadline deadline.Deadline
	timers   timers
	fin      Finish // filled as facts arrive
	verdict  outcome.Outcome
	request  RequestHeaders

	watch   *Watch
	header  ResponseHeaders // of a watched answer
	body    *answer.Answer  // of a watched answer, once its headers are there
	cut     bool            // the seal has lost the upstream
	asked   bool            // the seal was asked to end the answer
	closing bool            // the upstream has said its last word

	admission Admitted
	expired   int     // status of a shed for deadline_expired
	failure   failure // while falling
}

// Passing is a session that lets everything go on untouched and accounts for nothing: for what follows after the
// session it replaces has failed. duplex: the answer's body comes as a stream and must be sent on.
func Passing(duplex bool) Session {
	return Session{state: ended, passing: true, held: true, duplex: duplex}
}

// Broken is a session that ignores everything: for what follows after the session it replaces has failed with a part of
// the answer, which is broken off then. An answer with a hole would be a lie.
func Broken() Session { return Session{state: ended, held: true} }

// Withholds says whether something of the answer is held back: its headers, or bytes of its body.
func (s *Session) Withholds() bool { return s.state == holding || s.state == falling || s.Held() > 0 }

// Ended says whether the request has been accounted for.
func (s *Session) Ended() bool { return s.state == ended }

// Held is how many bytes of the answer are held back.
func (s *Session) Held() int {
	if s.body == nil || s.state == ended {
		return 0
	}
	return s.body.Held()
}

// Step takes one event and appends what is to be done to dst.
func (s *Session) Step(dst []Effect, now time.Time, ev Event) []Effect {
	if s.state == ended {
		return s.afterEnd(dst, ev)
	}
	switch ev := ev.(type) {
	case RequestHeaders:
		return s.onRequest(dst, ev)
	case Unmatched, NeedBody, Parked, Admitted, Refused, Answered:
		return s.onVerdict(dst, now, ev)
	case Fallen:
		return s.onFallen(dst, now, ev)
	case ResponseHeaders:
		return s.onAnswer(dst, now, ev)
	case ResponseTrailers:
		return s.onTrailers(dst, now, ev)
	case Body:
		return s.onBody(dst, now, ev)
	case UpstreamCut:
		s.cut = true
		return dst
	case Wake:
		return s.onWake(dst, now, ev)
	case Closed:
		return s.onClosed(dst)
	}
	return s.impossible(dst, "unknown event")
}

func (s *Session) onRequest(dst []Effect, ev RequestHeaders) []Effect {
	if s.state != start {
		return s.impossible(dst, "request headers")
	}
	s.state, s.request, s.fin.Dialect = asking, ev, ev.Dialect
	return append(dst, Offer{})
}

func (s *Session) onVerdict(dst []Effect, now time.Time, ev Event) []Effect {
	if _, late := ev.(Parked); late && s.state == admitted {
		return dst // the grant overtook the news that it would be waited for
	}
	if _, again := ev.(NeedBody); (s.state != asking && s.state != parked) || (again && s.buffered) {
		if _, grant := ev.(Admitted); grant && !s.held {
			s.held = true
			dst = append(dst, ReleaseSlot{})
		}
		return s.impossible(dst, "verdict")
	}
	switch ev := ev.(type) {
	case Unmatched:
		s.passing = true
		return s.finish(append(dst, PassThrough{}), outcome.Unmatched)
	case NeedBody:
		s.pin(ev.Pinned)
		s.state, s.buffered, s.fin.Route, s.expired = uploading, true, ev.Route, ev.ExpiredStatus
		s.timers.first = ev.Deadline.KillAt()
		return append(dst, AskBody{})
	case Parked:
		return s.onParked(dst, now, ev)
	case Answered:
		s.fin.Route = ev.Route
		return s.answerWith(dst, ev, ev.Outcome)
	case Admitted:
		return s.onAdmitted(dst, now, ev)
	case Refused:
		return s.onRefused(dst, ev)
	}
	return dst
}

func (s *Session) onParked(dst []Effect, now time.Time, ev Parked) []Effect {
	s.state, s.fin.Route = parked, ev.Route
	if s.extended {
		return dst
	}
	s.extended = true
	return append(dst, ExtendTimeout{max(0, ev.GiveUp.Sub(now)) + timeoutMargin})
}

func (s *Session) onAdmitted(dst []Effect, now time.Time, ev Admitted) []Effect {
	s.held = true
	if ev.Deadline.TooLate(now) { // the slot came when there was no time left to use it: nothing has gone upstream
		refused := Refused{Route: ev.Route, Reason: outcome.ShedDeadlineExpired, Tier: ev.Tier, Status: ev.ExpiredStatus, RetryAfter: time.Second}
		return s.onRefused(append(dst, ReleaseSlot{}), refused)
	}
	s.state, s.deadline, s.watch, s.admission = admitted, ev.Deadline, ev.Watch, ev
	if s.watch == nil && s.buffered { // the answer's body comes as a stream: that was asked for with the request's
		s.watch = &Watch{Pass: true}
	}
	s.fin.Route, s.fin.Tier, s.fin.Ran, s.fin.AdmittedAt = ev.Route, ev.Tier, ev.Reason, now
	if ev.Watch != nil && ev.Watch.Pinned {
		s.pin(&ev.Watch.Dialect)
	}
	s.timers.admit(now, ev.Deadline, ev.Watch)
	dst = append(dst, Continue{
		Tier:            ev.Tier,
		RemainingMillis: ev.Deadline.RemainingMillis(now),
		CoversWhole:     ev.Deadline.CoversWhole(),
		Watched:         ev.Watch != nil,
		Sealed:          ev.Watch != nil && ev.Watch.Sealed,
		Retry:           ev.Retry,
		Rewritten:       ev.Rewritten,
		Route:           ev.Route,
		Path:            ev.Path,
		Headers:         ev.Headers,
		Body:            ev.Body,
	})
	s.admission.Body = nil
	return dst
}

// pin replaces the dialect the path tells by the one the policy says.
func (s *Session) pin(id *dialect.ID) {
	if id != nil {
		s.request.Dialect, s.request.Known, s.fin.Dialect = *id, true, *id
	}
}

func (s *Session) onRefused(dst []Effect, ev Refused) []Effect {
	s.pin(ev.Pinned)
	r := outcome.ShedReply(ev.Reason, ev.Status, ev.RetryAfter)
	r.Body = dialect.ErrorBody(s.request.Dialect, dialect.Capacity, ev.Reason.String())
	s.fin.Route, s.fin.Shed, s.fin.ShedTier = ev.Route, ev.Reason, ev.Tier
	return s.reply(dst, r, outcome.ShedOutcome)
}

// onAnswer takes the answer's headers. One that is not watched is labelled and let go; its end tells the rest.
func (s *Session) onAnswer(dst []Effect, now time.Time, ev ResponseHeaders) []Effect {
	if s.state == start { // Envoy answers a request it could not read: there is nothing to decide
		s.state, s.passing = ended, true
		return append(dst, ContinueAnswer{})
	}
	if s.state == uploading && ev.FromEnvoy { // Envoy gave up on the request's body: it is too large, or broken
		s.state, s.watch, s.timers = admitted, &Watch{Pass: true}, timers{}
	}
	if s.state != admitted {
		return s.impossible(append(dst, ContinueAnswer{}), "response headers")
	}
	s.fin.Status, s.fin.Source, s.fin.Attempts = ev.Status, outcome.SourceUpstream, ev.Attempts
	s.fin.Upstream, s.fin.Headers, s.fin.Inner = ev.Status, ev.Headers, ev.Degraded
	if ev.FromEnvoy {
		s.fin.Source, s.fin.Details = outcome.SourceEnvoy, ev.Details
	}
	s.fin.Author = s.fin.Source
	s.verdict = outcome.ByStatus(ev.Status, ev.FromEnvoy, ev.Details)
	if ev.Dropped != outcome.Unknown && ev.Status >= 400 {
		s.verdict = ev.Dropped
	}
	s.header = ev
	if why := degradedBy(s.verdict); why != outcome.DegradedNone && s.admission.Fallback && !s.bodyTells() {
		return s.fall(dst, now, failure{why: why, outcome: s.verdict})
	}
	return s.begin(dst, now)
}

// bodyTells says whether an error's body is collected first: it may know better than the status what went wrong.
func (s *Session) bodyTells() bool {
	if s.watch == nil || s.header.EndOfBody {
		return false
	}
	kind, _ := s.kind()
	return kind == answer.JSON
}

// begin takes the answer whose headers are there.
func (s *Session) begin(dst []Effect, now time.Time) []Effect {
	if s.watch != nil && !s.header.EndOfBody {
		return s.watchAnswer(dst, now)
	}
	s.timers.answer(now, s.deadline, isStream(s.header.ContentType), nil)
	dst = s.release(dst, now)
	if s.header.EndOfBody {
		s.fin.Whole = true
		if s.watch != nil && s.verdict == outcome.OK && s.emptyBody() {
			s.verdict = outcome.Empty
		}
		return s.finish(dst, s.verdict)
	}
	return dst
}

// emptyBody says whether an answer without a body should have had one: not to HEAD, and not a 204 or 304, which say what
// they mean.
func (s *Session) emptyBody() bool {
	return s.header.Status == 200 && !s.request.Head && (isStream(s.header.ContentType) || strings.HasPrefix(mediaType(s.header.ContentType), "application/json"))
}

// release lets the answer's headers go, labelled.
func (s *Session) release(dst []Effect, now time.Time) []Effect {
	s.state = answered
	if s.header.Status < 400 && !s.header.FromEnvoy { // an error of a lower tier is no degraded answer
		s.fin.Degraded = s.fin.Ran
		if s.verdict == outcome.OK && (s.fin.Ran != outcome.DegradedNone || s.header.Degraded) {
			s.verdict = outcome.DegradedOK
		}
	}
	label := s.label(now, s.header)
	s.fin.Label = label.Set
	return append(dst, label)
}

// onBody takes a piece of a body. Pieces of a phase that is not watched go on as they are.
func (s *Session) onBody(dst []Effect, now time.Time, ev Body) []Effect {
	if ev.Phase == RequestBody && s.state == uploading {
		s.state, s.timers = asking, timers{}
		return append(dst, OfferBody{ev.Data})
	}
	if ev.Phase != ResponseBody || s.body == nil {
		return append(dst, ContinueBody{ev.Phase})
	}
	return s.watchBody(dst, now, ev)
}

func (s *Session) onTrailers(dst []Effect, now time.Time, ev ResponseTrailers) []Effect {
	switch {
	case s.body != nil:
		return s.watchTrailers(dst, now, ev)
	case s.state != answered:
		return s.impossible(append(dst, ContinueTrailers{}), "response trailers")
	}
	return s.finish(append(dst, ContinueTrailers{}), s.verdict)
}

// onClosed ends on closure. Before the answer it can only be the caller; Envoy would have said something. After
// headers of an answer that is not watched a clean end, an abort and a cut look alike (Envoy closes the side stream for
// each), so the status decides.
func (s *Session) onClosed(dst []Effect) []Effect {
	switch s.state {
	case start:
		s.state = ended
		return dst
	case asking, uploading, parked:
		return s.finish(append(dst, Abandon{}), outcome.ClientAborted)
	case admitted, falling:
		return s.finish(dst, outcome.ClientAborted)
	}
	if s.body != nil {
		return s.watchClosed(dst)
	}
	return s.finish(dst, s.verdict)
}

// afterEnd answers what still arrives, so that nothing waits for us, and gives back a late grant.
func (s *Session) afterEnd(dst []Effect, ev Event) []Effect {
	if _, ok := ev.(Admitted); ok && !s.held {
		s.held = true
		return append(dst, ReleaseSlot{})
	}
	if !s.passing {
		return dst
	}
	switch ev := ev.(type) {
	case RequestHeaders:
		return append(dst, PassThrough{})
	case ResponseHeaders:
		return append(dst, ContinueAnswer{})
	case ResponseTrailers:
		if ev.Cut && s.duplex {
			s.passing = false
			return append(dst, Reset{})
		}
		return append(dst, ContinueTrailers{})
	case Body:
		if ev.Phase == ResponseBody && s.duplex {
			return append(dst, SendBody{ev.Data, ev.End})
		}
		return append(dst, ContinueBody{ev.Phase})
	}
	return dst
}

// reply answers in the upstream's place and ends.
func (s *Session) reply(dst []Effect, r outcome.Reply, o outcome.Outcome) []Effect {
	s.fin.Source, s.fin.Status, s.fin.Degraded = r.Source, r.Status, outcome.DegradedNone
	return s.finish(s.cancel(append(dst, Reply{r})), o)
}

func (s *Session) finish(dst []Effect, o outcome.Outcome) []Effect {
	s.state, s.timers = ended, timers{}
	s.fin.Outcome = o
	for _, e := range dst {
		if b, ok := e.(SendBody); ok {
			s.fin.Bytes += int64(len(b.Data))
		}
	}
	if s.body != nil {
		st := s.body.State()
		s.fin.Usage, s.fin.Reason = st.Usage, st.Finish
	}
	return append(dst, s.fin)
}

func (s *Session) impossible(dst []Effect, what string) []Effect {
	return append(dst, ProtocolError{what + " while " + s.state.String()})
}
