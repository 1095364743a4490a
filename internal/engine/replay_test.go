package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

const replayPolicy = `
version: 1
tiers:
  full:   {model: {concurrency: 1, queue: 1}}
  small:  {model: {concurrency: 1, queue: 0}}
  cached: {cache: {stale_for: 1h}}
  canned: {template: {text: At capacity.}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat}}
  ladder: [full, small, cached, canned]
  cache: {ttl: 60s}
  idempotency: {ttl: 1h}
- name: bare
  match: {path: {prefix: /bare}}
  ladder: [full]
  cache: {ttl: 60s}
  idempotency: {}
`

const answerBody = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"four"},"finish_reason":"stop"}]}`

func chatBody(text string) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`)
}

// ask offers a request of a caller that asks text, and hands in its body.
func (r *rig) ask(name string, now int, text string, headers ...string) (Verdict, *Admission) {
	r.t.Helper()
	return r.askAt(name, now, "/v1/chat/completions", text, headers...)
}

func (r *rig) askAt(name string, now int, path, text string, headers ...string) (Verdict, *Admission) {
	r.t.Helper()
	r.clock = at(now)
	req := request(append([]string{"authorization", "Bearer a"}, headers...)...)
	req.Path, req.Dialect, req.More = path, dialect.Chat, true
	v, a := r.Offer(at(now), req, func(v Verdict) { r.late[name] = append(r.late[name], v) })
	if v.Kind != NeedBody {
		r.t.Fatalf("%s: %s, want that it needs the body", name, show(v))
	}
	return a.Body(at(now), chatBody(text)), a
}

// ended is a good answer of tier.
func good(tier string) Ended {
	e := Ended{Outcome: outcome.OK, Admitted: true, Tier: tier, Status: 200, Body: []byte(answerBody), Whole: true,
		Headers: []outcome.Header{{Name: "content-type", Value: "application/json"}}, Dialect: "openai_chat"}
	if tier != "full" {
		e.Outcome, e.Reason = outcome.DegradedOK, outcome.DegradedQueuePressure
	}
	return e
}

// finish ends an admitted request.
func (r *rig) finish(now int, v Verdict, a *Admission, e Ended) {
	r.clock = at(now)
	v.Ticket.Done(at(now))
	a.End(at(now), e)
}

func (r *rig) last(name string) Verdict {
	r.t.Helper()
	if len(r.late[name]) == 0 {
		r.t.Fatalf("%s: no late verdict", name)
	}
	return r.late[name][len(r.late[name])-1]
}

// told is an answer of ours in short.
func told(v Verdict) string {
	if v.Kind != Answered {
		return show(v)
	}
	get := func(name string) string {
		for _, h := range v.Reply.Headers {
			if h.Name == name {
				return h.Value
			}
		}
		return "-"
	}
	return fmt.Sprintf("%d %s tier=%s degraded=%s %s replayed=%s outcome=%s", v.Reply.Status, v.Reply.Source, get("x-tier"), get("x-degraded"),
		get("x-degraded-reason"), get("idempotent-replayed"), v.Outcome)
}

func wantTold(t *testing.T, what string, v Verdict, want string) {
	t.Helper()
	if got := told(v); got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

const (
	replayedFull  = "200 replay tier=full degraded=false - replayed=true outcome=replayed"
	replayedSmall = "200 replay tier=small degraded=true queue_pressure replayed=true outcome=replayed"
	canned        = "200 template tier=canned degraded=true %s replayed=- outcome=degraded"
)

func TestAFreshAnswerIsGivenAgainAndCostsNoSlot(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("1", 0, "what is 2+2?")
	expect(t, "first", v, "admitted full ")
	r.finish(10, v, a, good("full"))
	busy, _ := r.ask("busy", 20, "something else")
	expect(t, "the tier is full", busy, "admitted full ")
	again, b := r.ask("2", 30, "  what   is 2+2? ")
	wantTold(t, "the same but for white space", again, replayedFull)
	if string(again.Reply.Body) != answerBody {
		t.Errorf("body %s", again.Reply.Body)
	}
	b.End(at(30), Ended{Outcome: outcome.Replayed})
	other, _ := r.ask("3", 40, "What is 2+2?")
	expect(t, "another letter case is another question", other, "parked until 2490")
}

func TestAnAnswerPastItsTimeIsStaleAndOnlyTheCachedTierGivesIt(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("1", 0, "q")
	r.finish(10, v, a, good("full"))
	late := 61_000
	full, _ := r.ask("x", late, "x")
	small, _ := r.ask("y", late, "y")
	expect(t, "full is busy", full, "admitted full ")
	expect(t, "one waits", small, "parked until 63450")
	below, _ := r.ask("z", late, "z")
	expect(t, "small is busy", below, "admitted small queue_pressure")
	stale, b := r.ask("2", late, "q")
	wantTold(t, "the stale answer", stale, "200 replay tier=full degraded=true stale replayed=true outcome=replayed")
	if !strings.Contains(string(stale.Reply.Body), `"meta":{"tier":"full","degraded":true,"reason":"stale","deadline_ms":2500,"complete":true}`) {
		t.Errorf("body %s", stale.Reply.Body)
	}
	b.End(at(late), Ended{Outcome: outcome.Replayed})
	never, _ := r.ask("3", late, "q", headerDegrade, "never")
	expect(t, "not for those who want the best only", never, "shed queue_full full 503")
}

func TestFollowersGetTheLeadersAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		end  Ended
		want string // for a follower of the first tier's leader
	}{
		{"whole", good("full"), replayedFull},
		{"capped", with(good("full"), func(e *Ended) { e.Outcome = outcome.Capped }), replayedFull},
		{"failed", failed(outcome.UpstreamError, outcome.DegradedUpstreamError, 500), fmt.Sprintf(canned, "upstream_error")},
		{"late", failed(outcome.Deadline, outcome.DegradedDeadline, 0), fmt.Sprintf(canned, "deadline")},
		{"cut", failed(outcome.Truncated, outcome.DegradedUpstreamTruncated, 200), fmt.Sprintf(canned, "upstream_truncated")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, replayPolicy)
			v, a := r.ask("leader", 0, "q")
			first, _ := r.ask("follower", 1, "q")
			expect(t, "follower", first, "parked until 2451")
			if r.Dump(at(1), false).Tiers[0].Used != 1 {
				t.Error("the follower has a slot")
			}
			r.finish(100, v, a, c.end)
			wantTold(t, "follower", r.last("follower"), c.want)
		})
	}
}

func with(e Ended, change func(*Ended)) Ended {
	change(&e)
	return e
}

func failed(o outcome.Outcome, why outcome.Degraded, status int) Ended {
	e := Ended{Outcome: o, Admitted: true, Tier: "full", Failed: why, Status: status}
	if status >= 500 {
		e.Whole, e.Body, e.Headers = true, []byte(`{"error":"x"}`), []outcome.Header{{Name: "content-type", Value: "application/json"}, {Name: "retry-after", Value: "5"}}
		e.Source, e.Label = outcome.SourceUpstream, []outcome.Header{{Name: "x-brownout-source", Value: "upstream"}, {Name: "x-degraded", Value: "false"}}
	} else {
		r := outcome.DeadlineReply()
		e.Reply = &r
	}
	return e
}

func TestFollowersWhoAcceptNothingLessGetTheLeadersError(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("leader", 0, "q")
	r.ask("follower", 1, "q", headerDegrade, "never")
	r.finish(100, v, a, failed(outcome.UpstreamError, outcome.DegradedUpstreamError, 500))
	wantTold(t, "follower", r.last("follower"), "500 upstream tier=- degraded=false - replayed=- outcome=upstream_error")
	if h := r.last("follower").Reply.Headers; !slices.Contains(h, outcome.Header{Name: "retry-after", Value: "5"}) {
		t.Errorf("headers %v, want the leader's retry-after", h)
	}
}

// TestFollowersOfAnswersThatAreNoFailure: an error of the caller's is theirs too, and what cannot be kept makes them run.
func TestFollowersOfAnswersThatAreNoFailure(t *testing.T) {
	for _, c := range []struct {
		name, want string
		end        Ended
	}{
		{"400", "400 upstream tier=- degraded=false - replayed=- outcome=bad_request", Ended{Outcome: outcome.BadRequest, Admitted: true, Tier: "full", Status: 400,
			Whole: true, Body: []byte(`{}`), Source: outcome.SourceUpstream, Label: []outcome.Header{{Name: "x-degraded", Value: "false"}}}},
		{"too large to keep", "admitted full ", with(good("full"), func(e *Ended) { e.Whole, e.Body = false, nil })},
		{"empty", "admitted full ", with(good("full"), func(e *Ended) { e.Outcome = outcome.Empty })},
		{"degraded further in", "admitted full ", with(good("full"), func(e *Ended) { e.Outcome, e.Degraded = outcome.DegradedOK, true })},
		{"Envoy's word", "503 envoy tier=- degraded=false - replayed=- outcome=upstream_error", Ended{Outcome: outcome.UpstreamError, Admitted: true, Tier: "full", Status: 503,
			Source: outcome.SourceEnvoy, Label: []outcome.Header{{Name: "x-degraded", Value: "false"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, replayPolicy)
			v, a := r.ask("leader", 0, "q")
			r.ask("follower", 1, "q")
			r.finish(100, v, a, c.end)
			wantTold(t, "follower", r.last("follower"), c.want)
		})
	}
}

// TestAFollowerIsHeldAsLongAsItFollows: what it says about queues does not shorten what Envoy is told.
func TestAFollowerIsHeldAsLongAsItFollows(t *testing.T) {
	r := newRig(t, replayPolicy)
	r.ask("leader", 0, "q")
	f, _ := r.ask("follower", 0, "q", headerMaxQueue, "0")
	if f.Kind != Parked || f.HoldUntil != at(2450) {
		t.Errorf("%s, held until %v", show(f), f.HoldUntil.Sub(epoch))
	}
}

// TestNeverMeansNothingDegraded, whatever stands above the first tier that computes.
func TestNeverMeansNothingDegraded(t *testing.T) {
	src := strings.Replace(replayPolicy, "ladder: [full, small, cached, canned]", "ladder: [cached, full, canned]", 1)
	r := newRig(t, src)
	v, a := r.ask("1", 0, "q")
	r.finish(10, v, a, good("full"))
	stale, b := r.ask("2", 70_000, "q")
	wantTold(t, "stale", stale, "200 replay tier=full degraded=true stale replayed=true outcome=replayed")
	b.End(at(70_000), Ended{Outcome: outcome.Replayed})
	never, _ := r.ask("3", 70_000, "q", headerDegrade, "never")
	expect(t, "never", never, "admitted full ")
}

const dwellPolicy = `
version: 1
tiers:
  full:  {model: {concurrency: 1, queue: 9}}
  small: {model: {concurrency: 9, queue: 9}}
routes:
- {name: chat, match: {path: {prefix: /v1/chat}}, ladder: [full, {small: {wait_over: 100ms}}], ladder_dwell: 2s}
`

func TestABusyTierIsPassedByForTheDwell(t *testing.T) {
	r := newRig(t, dwellPolicy)
	first, a := r.offer("learn", 0, request())
	first.Ticket.Done(at(200))
	a.End(at(200), Ended{Outcome: outcome.OK, Admitted: true, Tier: "full", Service: 200 * ms})
	held, _ := r.offer("held", 1000, request())
	v, _ := r.offer("1", 1000, request())
	expect(t, "a wait of 200 ms is expected", v, "admitted small queue_pressure")
	held.Ticket.Done(at(1100))
	free, _ := r.offer("2", 1100, request())
	expect(t, "a free slot wins in the dwell", free, "admitted full ")
	again, _ := r.offer("3", 1200, request())
	expect(t, "without one the choice is kept to", again, "admitted small queue_pressure")
	if got := r.Dump(at(1200), false).Rungs; len(got) != 1 || got[0] != (RungState{"chat", "small", true, 1}) {
		t.Errorf("rungs %+v", got)
	}
}

func TestWaitingEndsAtWaitOver(t *testing.T) {
	r := newRig(t, dwellPolicy) // nothing is known of how long full takes
	held, _ := r.offer("held", 0, request())
	v, _ := r.offer("1", 0, request())
	if v.Kind != Parked || v.WakeAt != at(100) || v.HoldUntil != at(2450) {
		t.Fatalf("%s, wakes %v", show(v), v.WakeAt.Sub(epoch))
	}
	r.Tick(at(100))
	expect(t, "then the rung below", r.got("1"), "admitted small queue_pressure")
	next, _ := r.offer("2", 200, request())
	expect(t, "which is kept to", next, "admitted small queue_pressure")
	held.Ticket.Done(at(300))
}

func TestALowerTiersAnswerIsLabelledForFollowersAndRefusedByThoseWhoWantTheBest(t *testing.T) {
	r := newRig(t, replayPolicy)
	held, _ := r.ask("held", 0, "other")
	r.ask("waits", 0, "another")
	v, a := r.ask("leader", 0, "q")
	expect(t, "leader", v, "admitted small queue_pressure")
	r.ask("follower", 1, "q")
	r.ask("picky", 1, "q", headerDegrade, "never")
	r.finish(100, v, a, good("small"))
	wantTold(t, "follower", r.last("follower"), replayedSmall)
	expect(t, "picky runs by itself", r.last("picky"), "shed queue_full full 503")
	held.Ticket.Done(at(200))
	// The kept answer is found again when the walk reaches its tier, and takes no slot of it.
	busy, _ := r.ask("busy", 300, "and another")
	expect(t, "small is busy or full waits", busy, "parked until 2750")
	again, _ := r.ask("again", 300, "q")
	wantTold(t, "again", again, replayedSmall)
}

func TestWhenTheLeadersCallerLeavesTheFirstFollowerLeadsOnce(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("leader", 0, "q")
	_, b := r.ask("f1", 1, "q")
	r.ask("f2", 2, "q")
	r.ask("f3", 3, "q")
	r.finish(100, v, a, Ended{Outcome: outcome.ClientAborted, Admitted: true, Tier: "full"})
	first := r.last("f1")
	expect(t, "first follower", first, "admitted full ")
	if len(r.late["f2"])+len(r.late["f3"]) != 0 {
		t.Fatalf("others were told something: %v %v", r.late["f2"], r.late["f3"])
	}
	r.finish(200, first, b, Ended{Outcome: outcome.ClientAborted, Admitted: true, Tier: "full"})
	expect(t, "the others run by themselves", r.last("f2"), "admitted full ")
	expect(t, "…each", r.last("f3"), "parked until 2453")
}

func TestFollowersOfAShedLeaderAreShedAlike(t *testing.T) {
	r := newRig(t, strings.Replace(replayPolicy, "ladder: [full, small, cached, canned]", "ladder: [full]", 1))
	held, _ := r.ask("held", 0, "other")
	v, leader := r.ask("leader", 0, "q", headerMaxQueue, "100")
	expect(t, "leader waits", v, "parked until 100")
	r.ask("follower", 1, "q")
	r.clock = at(100)
	r.Tick(at(100))
	expect(t, "leader", r.got("leader"), "shed queue_full full 503")
	leader.End(at(100), Ended{Outcome: outcome.ShedOutcome})
	expect(t, "follower", r.last("follower"), "shed queue_full full 503")
	held.Ticket.Done(at(200))
}

func TestAFollowerRunsByItselfWhileThereIsStillTime(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("leader", 0, "q")
	f, _ := r.ask("follower", 0, "q")
	if f.WakeAt != at(1225) {
		t.Errorf("wakes %v after the start", f.WakeAt.Sub(epoch))
	}
	r.clock = at(1225)
	r.Tick(at(1225))
	expect(t, "follower", r.last("follower"), "parked until 2450")
	r.finish(1300, v, a, good("full"))
	expect(t, "follower, by its own slot", r.last("follower"), "admitted full ")
}

func TestIdempotencyKeys(t *testing.T) {
	key := []string{"idempotency-key", `"k-1"`}
	r := newRig(t, replayPolicy)
	v, a := r.ask("1", 0, "q", key...)
	expect(t, "first", v, "admitted full ")
	r.finish(10, v, a, with(good("full"), func(e *Ended) { e.Outcome = outcome.Capped })) // no answer for a cache
	again, _ := r.ask("2", 20, "q", "idempotency-key", "k-1")
	wantTold(t, "repeated, key without quotes", again, replayedFull)
	mismatch, _ := r.ask("3", 30, "other", key...)
	wantTold(t, "another payload", mismatch, "422 replay tier=- degraded=false - replayed=- outcome=bad_request")
	if want := `"reason":"payload_mismatch"`; !strings.Contains(string(mismatch.Reply.Body), want) {
		t.Errorf("body %s", mismatch.Reply.Body)
	}
	spaces, _ := r.ask("4", 40, " q ", key...)
	wantTold(t, "white space is payload too", spaces, "422 replay tier=- degraded=false - replayed=- outcome=bad_request")
	tenant, _ := r.ask("5", 50, "q", "idempotency-key", "k-1", "x-api-key", "b")
	expect(t, "another tenant", tenant, "admitted full ")
	for _, bad := range []string{"", `""`, strings.Repeat("x", 300), "a\x01b"} {
		v, _ := r.ask("bad", 60, "q", "idempotency-key", bad)
		wantTold(t, fmt.Sprintf("key %.10q", bad), v, "400 replay tier=- degraded=false - replayed=- outcome=bad_request")
	}
	two, _ := r.ask("two", 60, "q", "idempotency-key", "a", "idempotency-key", "b")
	wantTold(t, "two keys", two, "400 replay tier=- degraded=false - replayed=- outcome=bad_request")
}

// TestEncodedPayloadsOfAKeyAreToldApart, although nobody here can read them.
func TestEncodedPayloadsOfAKeyAreToldApart(t *testing.T) {
	r := newRig(t, replayPolicy)
	ask := func(now int, body string) (Verdict, *Admission) {
		req := request("authorization", "Bearer a", "content-encoding", "gzip", "idempotency-key", "z")
		req.Dialect, req.More = dialect.Chat, true
		_, a := r.offer("z", now, req)
		return a.Body(at(now), []byte(body)), a
	}
	v, a := ask(0, "one")
	r.finish(10, v, a, good("full"))
	again, _ := ask(20, "one")
	wantTold(t, "the same", again, replayedFull)
	other, _ := ask(30, "two")
	wantTold(t, "another", other, "422 replay tier=- degraded=false - replayed=- outcome=bad_request")
}

// TestAPartitionSplitsIdempotencyKeysToo: callers who share a credential are told apart by what the policy says.
func TestAPartitionSplitsIdempotencyKeysToo(t *testing.T) {
	r := newRig(t, strings.Replace(replayPolicy, "cache: {ttl: 60s}", "cache: {ttl: 60s, partition: [x-user]}", 1))
	v, a := r.ask("1", 0, "q", "idempotency-key", "k", "x-user", "alice")
	r.finish(10, v, a, good("full"))
	bob, _ := r.ask("2", 20, "q", "idempotency-key", "k", "x-user", "bob")
	expect(t, "bob", bob, "admitted full ")
}

// TestAKeptAnswerIsTheAnswerOfAKeyToo: a hit, or what a leader got, is what the key stands for from then on.
func TestAKeptAnswerIsTheAnswerOfAKeyToo(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("1", 0, "q")
	r.finish(10, v, a, good("full"))
	hit, b := r.ask("2", 20, "q", "idempotency-key", "k")
	wantTold(t, "from the cache", hit, replayedFull)
	b.End(at(20), Ended{Outcome: outcome.Replayed})
	late, _ := r.ask("3", 100_000, "q", "idempotency-key", "k")
	wantTold(t, "when the cache has forgotten it", late, replayedFull)
}

func TestAnIdempotencyKeyIsFreeAgainAfterAFailure(t *testing.T) {
	for _, end := range []Ended{
		failed(outcome.UpstreamError, outcome.DegradedUpstreamError, 500),
		failed(outcome.Deadline, outcome.DegradedDeadline, 0),
		failed(outcome.Truncated, outcome.DegradedUpstreamTruncated, 200),
		with(good("full"), func(e *Ended) { e.Outcome = outcome.Empty }),
		{Outcome: outcome.ClientAborted, Admitted: true, Tier: "full"},
	} {
		t.Run(end.Outcome.String(), func(t *testing.T) {
			r := newRig(t, replayPolicy)
			v, a := r.ask("1", 0, "q", "idempotency-key", "k")
			r.finish(10, v, a, end)
			again, _ := r.ask("2", 20, "q", "idempotency-key", "k")
			expect(t, "second", again, "admitted full ")
		})
	}
}

func TestAFollowerOfAKeyGets409AtItsKillTimeAndNeverRuns(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("leader", 0, "q", "idempotency-key", "k")
	f, _ := r.ask("follower", 0, "q", "idempotency-key", "k")
	if f.WakeAt != at(2450) {
		t.Errorf("wakes %v after the start, want at its killAt", f.WakeAt.Sub(epoch))
	}
	r.clock = at(2450)
	r.Tick(at(2450))
	wantTold(t, "follower", r.last("follower"), "409 replay tier=- degraded=false - replayed=- outcome=bad_request")
	r.finish(2460, v, a, good("full"))
	if n := len(r.late["follower"]); n != 1 {
		t.Errorf("%d verdicts", n)
	}
	again, _ := r.ask("again", 2500, "q", "idempotency-key", "k")
	wantTold(t, "the leader's answer is there for the next", again, replayedFull)
}

func TestAKeyHeldByAnotherReplicaIsAConflict(t *testing.T) {
	r := newRig(t, replayPolicy)
	two := New(epoch, compile(t, replayPolicy), Options{Store: r.store, Secret: []byte("s"), Now: func() time.Time { return r.clock }})
	one := New(epoch, compile(t, replayPolicy), Options{Store: r.store, Secret: []byte("s"), Now: func() time.Time { return r.clock }})
	r.Engine = one
	v, a := r.ask("1", 0, "q", "idempotency-key", "k")
	r.Engine = two
	_, b := r.ask("2", 1, "q", "idempotency-key", "k")
	for n := 21; n <= 61; n += 20 { // it may just have ended: it is asked a few times
		r.clock = at(n)
		r.Tick(at(n))
	}
	busy := r.last("2")
	b.End(at(61), Ended{Outcome: outcome.BadRequest})
	wantTold(t, "the same there", busy, "409 replay tier=- degraded=false - replayed=- outcome=bad_request")
	r.finish(70, v, a, good("full"))
	done, _ := r.ask("3", 80, "q", "idempotency-key", "k")
	wantTold(t, "afterwards", done, replayedFull)
}

// TestNeverStored: each kind of answer that may not answer other requests.
func TestNeverStored(t *testing.T) {
	header := func(name, value string) func(*Ended) {
		return func(e *Ended) { e.Headers = append(e.Headers, outcome.Header{Name: name, Value: value}) }
	}
	for name, change := range map[string]func(*Ended){
		"capped":          func(e *Ended) { e.Outcome = outcome.Capped },
		"refused":         func(e *Ended) { e.Outcome = outcome.Refusal },
		"empty":           func(e *Ended) { e.Outcome = outcome.Empty },
		"cut":             func(e *Ended) { e.Outcome, e.Whole = outcome.Truncated, false },
		"not whole":       func(e *Ended) { e.Whole = false },
		"ended by us":     func(e *Ended) { e.Outcome = outcome.Deadline },
		"degraded within": func(e *Ended) { e.Outcome, e.Degraded = outcome.DegradedOK, true },
		"no-store":        header("cache-control", "no-store"),
		"private":         header("cache-control", "max-age=5, private"),
		"varies":          header("vary", "*"),
		"an error":        func(e *Ended) { e.Status = 500 },
		"replaced":        func(e *Ended) { r := outcome.CutReply(); e.Reply = &r },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, replayPolicy)
			v, a := r.ask("1", 0, "q")
			r.finish(10, v, a, with(good("full"), change))
			again, _ := r.ask("2", 20, "q")
			expect(t, "second", again, "admitted full ")
			if r.notes["stored"] != 0 {
				t.Error("stored")
			}
		})
	}
	t.Run("template", func(t *testing.T) {
		r := newRig(t, replayPolicy)
		r.ask("a", 0, "a")
		r.ask("b", 0, "b")
		r.ask("c", 0, "c")
		v, a := r.ask("1", 0, "q")
		wantTold(t, "first", v, fmt.Sprintf(canned, "queue_pressure"))
		a.End(at(0), Ended{Outcome: outcome.DegradedOK})
		if r.notes["stored"] != 0 {
			t.Error("stored")
		}
	})
}

// TestRequestsThatAreNotKept: what of a request forbids it.
func TestRequestsThatAreNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		headers []string
	}{
		"no credential": {body: string(chatBody("q")), headers: []string{"authorization", ""}},
		"no-store":      {body: string(chatBody("q")), headers: []string{"cache-control", "no-store"}},
		"stored there":  {body: `{"model":"m","store":true,"messages":[]}`},
		"sampled":       {body: `{"model":"m","temperature":0.7,"messages":[]}`},
		"no object":     {body: `[1]`},
		"no JSON":       {body: `{"model":`},
		"twice a key":   {body: `{"model":"m","model":"n"}`},
		"encoded":       {body: string(chatBody("q")), headers: []string{"content-encoding", "gzip"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, replayPolicy)
			for i := range 2 {
				req := request(c.headers...)
				if name != "no credential" {
					req = request(append(c.headers, "authorization", "Bearer a")...)
				}
				req.Dialect, req.More = dialect.Chat, true
				_, a := r.offer("x", i, req)
				v := a.Body(at(i), []byte(c.body))
				expect(t, "each time", v, "admitted full ")
				r.finish(i, v, a, good("full"))
			}
		})
	}
}

func TestNoCacheAsksAnewAndKeepsTheAnswer(t *testing.T) {
	r := newRig(t, replayPolicy)
	v, a := r.ask("1", 0, "q")
	r.finish(1, v, a, good("full"))
	v, a = r.ask("2", 2, "q", "cache-control", "no-cache")
	expect(t, "asked anew", v, "admitted full ")
	r.finish(3, v, a, with(good("full"), func(e *Ended) { e.Body = []byte(strings.Replace(answerBody, "four", "4", 1)) }))
	v, _ = r.ask("3", 4, "q")
	if !strings.Contains(string(v.Reply.Body), `"4"`) {
		t.Errorf("%s: %s", told(v), v.Reply.Body)
	}
}

// brokenStore fails every call, each a while later.
type brokenStore struct{ replay.Store }

func (brokenStore) Lookup(_ time.Time, _ []replay.Key, done func([]*replay.Entry, error)) {
	done(nil, replay.ErrDown)
}
func (brokenStore) Claim(_ time.Time, _, _ replay.Key, done func(replay.Claim, error)) {
	done(replay.Claim{}, replay.ErrSlow)
}
func (brokenStore) Save(time.Time, replay.Key, *replay.Entry, time.Duration) {}

func TestWithoutItsStoreARequestGoesOnAndIsCounted(t *testing.T) {
	r := newRig(t, replayPolicy)
	r.store = brokenStore{}
	v, a := r.ask("1", 0, "q", "idempotency-key", "k")
	expect(t, "request", v, "admitted full ")
	if r.notes["store_failed"] != 1 { // it is asked once: a second question would take its time again
		t.Errorf("%d failures counted, want 1", r.notes["store_failed"])
	}
	r.finish(1, v, a, good("full"))
}

// TestManyAskTheSameAtOnce hammers flights, claims and the store: whoever leads, leaves or fails, everybody is settled once,
// and nothing is left over.
func TestManyAskTheSameAtOnce(t *testing.T) {
	e := New(time.Now(), compile(t, replayPolicy), Options{})
	var settled atomic.Int64
	var wg sync.WaitGroup
	const callers, rounds = 16, 60
	for c := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for range rounds {
				ask1(e, r, &settled)
			}
		})
	}
	wg.Wait()
	if n := settled.Load(); n != callers*rounds {
		t.Errorf("%d settled, want %d", n, callers*rounds)
	}
	if flights, followers := e.flights.Len(); flights != 0 || followers != 0 {
		t.Errorf("%d flights and %d followers are left over", flights, followers)
	}
	for _, tier := range e.Dump(time.Now(), false).Tiers {
		if tier.Used != 0 || tier.Waiting != 0 {
			t.Errorf("%s: %d slots, %d waiting", tier.Tier, tier.Used, tier.Waiting)
		}
	}
	if n := e.bodies.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are held", n)
	}
}

// ask1 is one request of the hammer, from its offer to its end.
func ask1(e *Engine, r *rand.Rand, settled *atomic.Int64) {
	headers := []string{"authorization", "Bearer a", "x-budget-ms", "200"}
	if r.IntN(3) == 0 {
		headers = append(headers, "idempotency-key", fmt.Sprint("k", r.IntN(3)))
	}
	req := request(headers...)
	req.Dialect, req.More = dialect.Chat, true
	verdicts := make(chan Verdict, 8)
	_, a := e.Offer(time.Now(), req, func(v Verdict) { verdicts <- v })
	v := a.Body(time.Now(), chatBody(fmt.Sprint("q", r.IntN(4))))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for v.Kind == Parked || v.Kind == Looking {
		if r.IntN(20) == 0 { // the caller leaves
			a.Abandon()
			a.End(time.Now(), Ended{Outcome: outcome.ClientAborted})
			drain(verdicts)
			settled.Add(1)
			return
		}
		select {
		case v = <-verdicts:
		case <-tick.C:
			e.Tick(time.Now())
		}
	}
	end := Ended{Outcome: v.Outcome}
	if v.Kind == Admitted {
		end = good(v.Tier)
		switch r.IntN(4) {
		case 0:
			end = failed(outcome.UpstreamError, outcome.DegradedUpstreamError, 500)
		case 1:
			end = Ended{Outcome: outcome.ClientAborted, Admitted: true, Tier: v.Tier}
		}
		v.Ticket.Done(time.Now())
	}
	a.End(time.Now(), end)
	settled.Add(1)
}

// drain gives back what a verdict brings that was on its way.
func drain(verdicts chan Verdict) {
	for {
		select {
		case v := <-verdicts:
			if v.Ticket != nil {
				v.Ticket.Done(time.Now())
			}
		default:
			return
		}
	}
}
