package extproc

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

// letter is an event in the mailbox, with the slot it brings.
type letter struct {
	ev     session.Event
	ticket *limit.Ticket
}

// books says how far the accounting of a request has come.
type books uint8

const (
	unopened books = iota // not counted yet
	opened                // counted as arrived
	closed                // counted as ended
)

// stream drives one session.
type stream struct {
	srv *Server
	out *outbox
	req engine.Request
	// verbose: requests that went well are logged too.
	verbose bool
	seal    string                 // what Envoy's route over the seal matches; "": it has none
	id      atomic.Pointer[string] // set once the request goes over the seal
	keep    atomic.Bool            // the answer is to be kept

	// Written and read only while draining, by one goroutine at a time.
	ticket    *limit.Ticket
	admission *engine.Admission
	class     string
	arrived   time.Time
	effects   []session.Effect
	duplex    bool // the answer's body comes and goes as a stream
	buffered  bool // the request's body was asked for: a reply to it is owed, not to the headers

	mu        sync.Mutex // guards the fields below; not held while effects are performed
	box       []letter
	draining  bool
	sess      session.Session
	timer     *time.Timer
	timerAt   time.Time
	books     books
	owed      bool // Envoy waits for a reply
	heldBytes int64
}

// post hands an event to the session. Whoever finds nobody draining drains; it returns when the mailbox is empty or
// another goroutine has it.
func (st *stream) post(l letter) {
	st.mu.Lock()
	st.box = append(st.box, l)
	if st.draining {
		st.mu.Unlock()
		return
	}
	st.draining = true
	for len(st.box) > 0 {
		l := st.box[0]
		st.box = st.box[1:]
		now := time.Now()
		if l.ticket != nil {
			st.ticket = l.ticket
		}
		st.effects = st.step(now, l.ev)
		st.mu.Unlock()
		for _, e := range st.effects {
			st.attempt(now, l.ev, e)
		}
		st.sweep(now, l)
		st.mu.Lock()
		st.accountHeldLocked()
	}
	st.box = nil
	st.draining = false
	st.setTimerLocked()
	st.mu.Unlock()
}

// step runs the session. One that fails is replaced by one that lets the rest pass.
func (st *stream) step(now time.Time, ev session.Event) (effects []session.Effect) {
	defer func() {
		if p := recover(); p != nil {
			st.srv.complain("session failed, the rest of the stream passes through", p)
			if st.replaceLocked(false) {
				effects = []session.Effect{session.Reset{}}
			} else {
				effects = st.sess.Step(nil, now, ev)
			}
			if st.books == opened {
				effects = append(effects, session.Finish{Outcome: outcome.Unmatched})
			}
		}
	}()
	return st.sess.Step(st.effects[:0], now, ev)
}

// attempt performs an effect. One that fails turns the session into one that lets the rest pass, and hands it the
// event once more if Envoy still waits for a reply.
func (st *stream) attempt(now time.Time, ev session.Event, e session.Effect) {
	defer func() {
		if p := recover(); p != nil {
			st.srv.complain("effect failed, the rest of the stream passes through", p)
			st.mu.Lock()
			broken := st.replaceLocked(true)
			if st.owed && !broken {
				st.box = append([]letter{{ev: ev}}, st.box...)
			}
			st.mu.Unlock()
			if broken {
				st.send(encodeReset())
			}
			st.writeOff(now)
		}
	}()
	st.perform(now, e)
}

// replaceLocked replaces a session that failed. What it held back of an answer is lost, and so is what an effect did not
// send (lossy): the answer must then be broken off, true. The seal may no longer end it either.
func (st *stream) replaceLocked(lossy bool) (broken bool) {
	broken = st.duplex && (lossy || st.withholds())
	st.sess = session.Passing(st.duplex)
	if broken {
		st.sess = session.Broken()
	}
	if id := st.id.Load(); id != nil {
		st.srv.sealed.leave(*id)
	}
	return broken
}

// withholds asks a session that has failed what it holds back; one that cannot say it may hold anything.
func (st *stream) withholds() (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	return st.sess.Withholds()
}

// writeOff ends the accounting of a request whose handling failed: it goes on as if no route had matched.
func (st *stream) writeOff(now time.Time) {
	defer func() {
		if p := recover(); p != nil {
			st.srv.complain("accounting failed", p)
		}
	}()
	if st.admission != nil {
		st.admission.Abandon()
	}
	st.mu.Lock()
	arrived := st.books == opened
	st.mu.Unlock()
	if arrived {
		st.finish(now, session.Finish{Outcome: outcome.Unmatched})
	}
}

func (st *stream) perform(now time.Time, e session.Effect) {
	switch e := e.(type) {
	case session.Offer:
		st.offer(now)
	case session.AskBody:
		st.buffered, st.duplex = true, true
		st.reply(encodeAskBody())
	case session.OfferBody:
		if st.admission != nil {
			st.decide(now, st.admission.Body(now, e.Data))
		}
	case session.Fallback:
		st.fallBack(now, e.Why)
	case session.Abandon:
		if st.admission != nil {
			st.admission.Abandon()
		}
	case session.ReleaseSlot:
		st.release(now)
	case session.ExtendTimeout:
		st.out.put(encodeExtendTimeout(e.For))
	case session.PassThrough:
		st.reply(encodePassThrough())
	case session.Continue:
		st.goUpstream(e)
	case session.ContinueAnswer:
		st.reply(encodeContinueAnswer(e))
	case session.ContinueTrailers:
		st.reply(encodeContinueTrailers())
	case session.ContinueBody:
		st.reply(encodeContinueBody(e.Phase))
	case session.SendBody:
		st.sendBody(e)
	case session.Reset:
		st.send(encodeReset())
	case session.CancelUpstream:
		if id := st.id.Load(); id != nil {
			st.srv.cancel(*id)
		}
	case session.FinishUpstream:
		if id := st.id.Load(); id != nil {
			st.srv.finish(*id)
		}
	case session.Reply:
		st.reply(encodeReply(e.Reply))
	case session.Finish:
		st.finish(now, e)
	case session.ProtocolError:
		st.srv.nag(now, e.What)
	}
}

func (st *stream) reply(m *pb.ProcessingResponse) {
	st.mu.Lock()
	st.owed = false
	st.mu.Unlock()
	st.send(m)
}

func (st *stream) send(m *pb.ProcessingResponse) {
	if !st.out.put(m) {
		st.srv.log.Debug("reply dropped: the stream is closed")
	}
}

// goUpstream lets the request go, over the seal where policy and Envoy's configuration have one.
func (st *stream) goUpstream(c session.Continue) {
	st.duplex = st.duplex || c.Watched
	seal, id := "", ""
	if c.Sealed {
		seal, id = st.seal, st.srv.sealed.enter(st)
		st.id.Store(&id)
	}
	if st.buffered {
		st.reply(encodeContinueWithBody(c, seal, id))
		return
	}
	st.reply(encodeContinue(c, seal, id))
}

func (st *stream) sealed() bool { return st.id.Load() != nil }

func (st *stream) sendBody(b session.SendBody) {
	st.mu.Lock()
	st.owed = false
	st.mu.Unlock()
	for _, m := range encodeSendBody(b) {
		st.send(m)
	}
}

func (st *stream) offer(now time.Time) {
	v, a := st.srv.engine.Offer(now, st.req, st.settled)
	st.req.Headers = nil
	st.admission, st.class, st.arrived = a, v.Class, now
	route := v.Route
	if v.Kind == engine.Unmatched {
		route = RouteNone
	}
	st.srv.tally.begin()
	st.advance(opened)
	st.srv.obs.Arrived(route)
	for _, name := range v.Ignored {
		st.srv.obs.Ignored(name)
	}
	st.decide(now, v)
}

// decide tells the session what the engine says.
func (st *stream) decide(now time.Time, v engine.Verdict) {
	switch v.Kind {
	case engine.Looking: // the next verdict comes by itself
		return
	case engine.Parked:
		st.post(letter{ev: session.Parked{Route: v.Route, GiveUp: v.HoldUntil}})
		st.srv.alarm.arm(v.WakeAt)
		return
	}
	st.keep.Store(v.Keep > 0)
	st.post(st.verdictLetter(v))
	st.observeWaits(v)
}

// settled receives the verdict of a parked request, on the goroutine that decided it.
func (st *stream) settled(v engine.Verdict) {
	st.decide(time.Now(), v)
	st.out.kick()
}

// fallBack asks what stands in for an answer that failed; the session hears it before anything else.
func (st *stream) fallBack(now time.Time, why outcome.Degraded) {
	var ev session.Fallen
	if st.admission != nil {
		if v, ok := st.admission.Fallback(now, why); ok {
			ev.Answer = answered(v)
		}
	}
	st.mu.Lock()
	st.box = append([]letter{{ev: ev}}, st.box...)
	st.mu.Unlock()
}

func (st *stream) observeWaits(v engine.Verdict) {
	for _, w := range v.Waits {
		st.srv.obs.Waited(w.Tier, v.Class, w.For)
	}
}

func (st *stream) verdictLetter(v engine.Verdict) letter {
	switch v.Kind {
	case engine.Admitted:
		return letter{session.Admitted{Route: v.Route, Tier: v.Tier, Reason: v.Reason, Deadline: v.Deadline,
			ExpiredStatus: v.ShedStatus, Watch: watchOf(v.Stream, st.seal != ""),
			Rewritten: v.Rewrite.Named, Path: v.Rewrite.Path, Headers: v.Rewrite.Headers, Body: v.Rewrite.Body, Retry: v.Retry,
			Fallback: v.Fallback, ReplaceEmpty: v.ReplaceEmpty, Keep: v.Keep}, v.Ticket}
	case engine.NeedBody:
		return letter{ev: session.NeedBody{Route: v.Route, Deadline: v.Deadline, ExpiredStatus: v.ShedStatus, Pinned: v.Pinned}}
	case engine.Answered:
		return letter{ev: *answered(v)}
	case engine.Shed:
		return letter{ev: session.Refused{Route: v.Route, Reason: v.Shed, Tier: v.ShedTier, Status: v.ShedStatus, RetryAfter: v.RetryAfter,
			Pinned: v.Pinned}}
	}
	return letter{ev: session.Unmatched{}}
}

func answered(v engine.Verdict) *session.Answered {
	return &session.Answered{Route: v.Route, Reply: v.Reply, Outcome: v.Outcome, Tier: v.Tier, Reason: v.Reason}
}

func (st *stream) release(now time.Time) {
	if t := st.ticket; t != nil {
		st.ticket = nil
		t.Done(now)
	}
}

func (st *stream) finish(now time.Time, f session.Finish) {
	if !st.advance(closed) {
		return
	}
	st.release(now)
	if st.admission != nil {
		st.admission.End(now, ended(now, f))
	}
	st.srv.tally.finish()
	r := record(now, f, st.class, st.arrived)
	st.srv.obs.Finished(r)
	st.srv.logRequest(r, st.verbose)
}

// advance moves the books on, never back. False: they were there already.
func (st *stream) advance(to books) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.books >= to {
		return false
	}
	st.books = to
	return true
}

// setTimerLocked keeps one timer at or before the session's next wake. A wake that moves later, as it does with every
// piece of a stream, leaves the timer alone: when it rings, the session says that it is too early.
func (st *stream) setTimerLocked() {
	at, ok := st.sess.NextWake()
	switch {
	case !ok:
		if st.timer != nil && !st.timerAt.IsZero() {
			st.timer.Stop()
			st.timerAt = time.Time{}
		}
		return
	case !st.timerAt.IsZero() && !at.Before(st.timerAt):
		return
	}
	st.timerAt = at
	if st.timer == nil {
		st.timer = time.AfterFunc(time.Until(at), st.wake)
		return
	}
	st.timer.Reset(time.Until(at))
}

// accountHeldLocked keeps the server's sum of the bytes that are held back.
func (st *stream) accountHeldLocked() {
	if n := int64(st.sess.Held()); n != st.heldBytes {
		st.srv.held.Add(n - st.heldBytes)
		st.heldBytes = n
	}
}

func (st *stream) wake() {
	st.mu.Lock()
	st.timerAt = time.Time{}
	st.mu.Unlock()
	id := st.id.Load()
	st.post(letter{ev: session.Wake{Blocked: id != nil && st.srv.blocked(*id)}})
	st.out.kick()
}

// end closes the stream. The handler calls it last; a drainer on another goroutine may still see the closure through.
func (st *stream) end() {
	st.post(letter{ev: session.Closed{}})
	if id := st.id.Load(); id != nil {
		st.srv.sealed.leave(*id)
	}
	st.out.close()
}

// sweep looks after a letter whether something was left lying: a request whose stream has ended without an outcome, and
// a slot that came when the request was over, because its grant overtook the news that its stream had failed.
func (st *stream) sweep(now time.Time, l letter) {
	_, over := l.ev.(session.Closed)
	if !over && l.ticket == nil {
		return
	}
	st.mu.Lock()
	if over {
		st.loseLocked()
	}
	over = st.books == closed
	st.mu.Unlock()
	if over {
		st.release(now)
	}
}

// loseLocked notes a request that ends without an outcome, which is a bug.
func (st *stream) loseLocked() {
	if st.books == opened {
		st.books = closed
		st.srv.tally.lose()
	}
}

func (s *Server) complain(what string, p any) {
	s.log.Error(what, slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
}
