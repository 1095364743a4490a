package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

const ms = time.Millisecond

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(n int) time.Time { return epoch.Add(time.Duration(n) * ms) }

const twoTiers = `
version: 1
tiers:
  full:  {model: {concurrency: 1, queue: 1}}
  small: {model: {concurrency: 1, queue: 1}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat}}
  ladder: [full, small]
  shed: {status: {queue_full: 429}}
- name: batch
  match: {path: {exact: /batch}}
  ladder: [small]
  budget: {default: 8s}
`

func compile(t testing.TB, src string) *policy.Snapshot {
	t.Helper()
	s, problems := policy.Parse("test.yaml", []byte(src))
	if s == nil {
		t.Fatalf("policy: %v", problems)
	}
	return s
}

func request(headers ...string) Request {
	r := Request{Method: "POST", Path: "/v1/chat/completions?x=1"}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, outcome.Header{Name: headers[i], Value: headers[i+1]})
	}
	return r
}

// rig is an engine and the verdicts it delivered late, by request name.
type rig struct {
	*Engine
	t    *testing.T
	late map[string][]Verdict

	notes map[string]int
	clock time.Time // what the engine reads where it is not told
}

func newRig(t *testing.T, src string) *rig {
	r := &rig{t: t, late: map[string][]Verdict{}, notes: map[string]int{}, clock: epoch}
	r.Engine = New(epoch, compile(t, src), Options{Now: func() time.Time { return r.clock }, Replay: func(result string) { r.notes[result]++ }})
	return r
}

func (r *rig) offer(name string, now int, req Request) (Verdict, *Admission) {
	r.clock = at(now)
	return r.Offer(at(now), req, func(v Verdict) { r.late[name] = append(r.late[name], v) })
}

// got is the only late verdict of a request.
func (r *rig) got(name string) Verdict {
	r.t.Helper()
	if len(r.late[name]) != 1 {
		r.t.Fatalf("%s: %d late verdicts, want 1: %+v", name, len(r.late[name]), r.late[name])
	}
	return r.late[name][0]
}

func show(v Verdict) string {
	switch v.Kind {
	case Admitted:
		return fmt.Sprintf("admitted %s %s", v.Tier, v.Reason)
	case Parked:
		return fmt.Sprintf("parked until %d", v.GiveUp.Sub(epoch).Milliseconds())
	case Shed:
		return fmt.Sprintf("shed %s %s %d", v.Shed, v.ShedTier, v.ShedStatus)
	}
	return "unmatched"
}

func expect(t *testing.T, what string, v Verdict, want string) {
	t.Helper()
	if got := show(v); got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestTheLadderIsWalkedDown(t *testing.T) {
	r := newRig(t, twoTiers)
	v, _ := r.offer("1", 0, request())
	expect(t, "first", v, "admitted full ")
	v2, _ := r.offer("2", 0, request())
	expect(t, "second waits for the better tier", v2, "parked until 2450")
	v3, _ := r.offer("3", 0, request())
	expect(t, "third goes down", v3, "admitted small queue_pressure")
	v4, _ := r.offer("4", 0, request())
	expect(t, "fourth waits below", v4, "parked until 2450")
	v5, _ := r.offer("5", 0, request())
	expect(t, "fifth is shed with the first refusal", v5, "shed queue_full full 429")
	if v5.RetryAfter < 500*ms || v5.RetryAfter > 1000*ms {
		t.Errorf("retry after %s, want 500 to 1000 ms", v5.RetryAfter)
	}
	v.Ticket.Done(at(100))
	expect(t, "second", r.got("2"), "admitted full ")
	if w := r.got("2").Waits; len(w) != 1 || w[0] != (Wait{"full", 100 * ms}) {
		t.Errorf("waits %v", w)
	}
	v3.Ticket.Done(at(200))
	expect(t, "fourth", r.got("4"), "admitted small queue_pressure")
}

func TestGivingUpWalksOnBelow(t *testing.T) {
	r := newRig(t, twoTiers)
	held, _ := r.offer("1", 0, request())
	low, _ := r.Offer(at(0), Request{Method: "GET", Path: "/batch"}, nil)
	expect(t, "batch takes small", low, "admitted small ")
	v, _ := r.offer("2", 0, request(headerMaxQueue, "100"))
	expect(t, "waits as long as it says", v, "parked until 100")
	low.Ticket.Done(at(50))
	r.Tick(at(100))
	expect(t, "then takes what is free below", r.got("2"), "admitted small queue_pressure")
	if w := r.got("2").Waits; len(w) != 2 || w[0] != (Wait{"full", 100 * ms}) || w[1] != (Wait{"small", 0}) {
		t.Errorf("waits %v", w)
	}
	v, _ = r.offer("3", 100, request(headerMaxQueue, "100"))
	expect(t, "the next one", v, "parked until 200")
	r.Tick(at(200))
	expect(t, "finds nothing below", r.got("3"), "shed queue_full full 429")
	held.Ticket.Done(at(300))
}

func TestReasonsAtTheEndOfTheLadder(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		want    string // at once
		late    string // after every wait has ended
	}{
		{"default", nil, "parked until 2450", "shed deadline_expired full 503"},
		{"do not queue me", []string{headerMaxQueue, "0"}, "shed queue_full full 429", ""},
		{"a short wait", []string{headerMaxQueue, "40"}, "parked until 40", "shed queue_full full 429"},
		{"a wait beyond the deadline", []string{headerMaxQueue, "99999", "x-budget-ms", "100"}, "parked until 95", "shed deadline_expired full 503"},
		{"never degrade", []string{headerDegrade, "never"}, "parked until 2450", "shed deadline_expired full 503"},
		{"gone on arrival", []string{"x-budget-ms", "0"}, "shed deadline_expired  503", ""},
		{"negative", []string{headerRemaining, "-5"}, "shed deadline_expired  503", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, twoTiers)
			r.offer("a", 0, request())
			r.Offer(at(0), Request{Method: "GET", Path: "/batch"}, nil)
			v, _ := r.offer("x", 0, request(c.headers...))
			expect(t, "at once", v, c.want)
			for wake, ok := r.NextWake(); ok; wake, ok = r.NextWake() {
				r.Tick(wake)
			}
			if c.late != "" {
				expect(t, "late", r.got("x"), c.late)
			} else if len(r.late["x"]) > 0 {
				t.Errorf("settled twice: %v", r.late["x"])
			}
		})
	}
}

func TestDegradeNamesTheLowestAcceptedTier(t *testing.T) {
	r := newRig(t, twoTiers)
	r.offer("1", 0, request())
	r.offer("2", 0, request())
	v, _ := r.offer("3", 0, request(headerDegrade, "never"))
	expect(t, "never", v, "shed queue_full full 429")
	v, _ = r.offer("4", 0, request(headerDegrade, "full"))
	expect(t, "full", v, "shed queue_full full 429")
	v, _ = r.offer("5", 0, request(headerDegrade, "small"))
	expect(t, "small", v, "admitted small queue_pressure")
}

func TestHeadersOfNoUseAreIgnoredAndNamed(t *testing.T) {
	for _, c := range []struct {
		headers []string
		budget  time.Duration
		ignored string
	}{
		{[]string{"x-budget-ms", "1e3"}, 2500 * ms, "[x-budget-ms]"},
		{[]string{"x-budget-ms", "500ms"}, 2500 * ms, "[x-budget-ms]"},
		{[]string{"x-budget-ms", "99999999999999999999"}, 2500 * ms, "[x-budget-ms]"},
		{[]string{"x-budget-ms", " 500"}, 500 * ms, "[]"},
		{[]string{"x-budget-ms", "900, 300"}, 300 * ms, "[]"},
		{[]string{"x-budget-ms", "900", "x-budget-ms", "300"}, 300 * ms, "[]"},
		{[]string{"x-budget-ms", "900, x"}, 900 * ms, "[x-budget-ms]"},
		{[]string{"x-budget-ms", "5000", headerRemaining, "800"}, 800 * ms, "[]"},
		{[]string{"x-budget-ms", "60000"}, 10 * time.Second, "[]"},
		{[]string{headerGRPCTimeout, "700m"}, 700 * ms, "[]"},
		{[]string{headerGRPCTimeout, "7x"}, 2500 * ms, "[grpc-timeout]"},
		{[]string{headerEnvoyTimeout, "1000"}, 750 * ms, "[]"},
		{[]string{headerMaxQueue, "-1"}, 2500 * ms, "[x-max-queue-ms]"},
		{[]string{headerDegrade, "tiny"}, 2500 * ms, "[x-degrade]"},
		{[]string{"x-priority", "urgent"}, 2500 * ms, "[x-priority]"},
	} {
		r := newRig(t, twoTiers)
		v, _ := r.offer("x", 0, request(c.headers...))
		if v.Deadline.Budget != c.budget || fmt.Sprint(v.Ignored) != c.ignored {
			t.Errorf("%q: budget %s ignored %v, want %s %s", c.headers, v.Deadline.Budget, v.Ignored, c.budget, c.ignored)
		}
	}
}

func TestWhatABudgetCovers(t *testing.T) {
	for _, c := range []struct {
		headers []string
		whole   bool
	}{
		{nil, false}, {[]string{"x-budget-ms", "100"}, true}, {[]string{headerRemaining, "100"}, true},
		{[]string{headerRemaining, "100", headerCovers, "first_content"}, false},
		{[]string{headerRemaining, "100", headerCovers, "whole"}, true},
	} {
		r := newRig(t, twoTiers)
		v, _ := r.offer("x", 0, request(c.headers...))
		if got := !v.Deadline.Whole.IsZero(); got != c.whole {
			t.Errorf("%q: covers the whole answer: %t, want %t", c.headers, got, c.whole)
		}
	}
}

func TestPriorityIsBelievedAsThePolicySays(t *testing.T) {
	for _, c := range []struct {
		trust    string
		headers  []string
		class    string
		priority int
	}{
		{"all", []string{"x-priority", "high"}, "high", 10},
		{"all", []string{"x-priority", "low, high"}, "high", 10},
		{"all", []string{"x-priority", "low"}, "low", -5},
		{"internal", []string{"x-priority", "high"}, ClassDefault, 0},
		{"internal", []string{"x-priority", "high", headerInternal, "true"}, "high", 10},
	} {
		src := twoTiers + "priority: {map: {high: 10, low: -5}, trust: " + c.trust + "}\n"
		r := newRig(t, src)
		r.offer("1", 0, request())
		v, w := r.offer("x", 0, request(c.headers...))
		if v.Class != c.class || w.want.Priority != c.priority {
			t.Errorf("%s %q: class %s priority %d, want %s %d", c.trust, c.headers, v.Class, w.want.Priority, c.class, c.priority)
		}
	}
}

func TestUnmatchedAndRouteBudget(t *testing.T) {
	r := newRig(t, twoTiers)
	v, _ := r.Offer(at(0), Request{Method: "GET", Path: "/v1/chat"}, nil)
	expect(t, "method", v, "unmatched")
	v, _ = r.Offer(at(0), Request{Method: "GET", Path: "/batch?y"}, nil)
	if v.Route != "batch" || v.Deadline.Budget != 8*time.Second {
		t.Errorf("got %+v, want the batch route's budget", v)
	}
}

func TestAnnouncedLimitsClampTheWait(t *testing.T) {
	r := newRig(t, twoTiers)
	r.offer("1", 0, request())
	req := request()
	req.MaxWait = 300 * ms
	v, _ := r.offer("2", 0, req)
	expect(t, "max wait", v, "parked until 300")
	req = request()
	req.RouteTimeout = 1000 * ms
	v, _ = r.offer("3", 0, req)
	if v.Deadline.Budget != 750*ms {
		t.Errorf("budget %s under a route timeout of 1 s, want 750 ms", v.Deadline.Budget)
	}
}

func TestAnAbandonedWaitDeliversNothingAndFreesItsPlace(t *testing.T) {
	r := newRig(t, twoTiers)
	held, _ := r.offer("1", 0, request())
	_, w := r.offer("2", 0, request())
	w.Abandon()
	w.Abandon()
	if s := r.Dump(at(0), true).Tiers[0]; s.Waiting != 0 || len(s.Waiters) != 0 {
		t.Errorf("still waiting: %+v", s)
	}
	held.Ticket.Done(at(1))
	if len(r.late) != 0 {
		t.Errorf("delivered %v", r.late)
	}
}

func TestReloadKeepsSlotsWaitersAndSnapshots(t *testing.T) {
	r := newRig(t, twoTiers)
	held, _ := r.offer("1", 0, request())
	r.offer("2", 0, request())
	onlySmall := `
version: 1
tiers: {small: {model: {concurrency: 5, queue: 0}}}
routes: [{name: chat, match: {path: {prefix: /v1}}, ladder: [small]}]
`
	r.Apply(at(1), compile(t, onlySmall))
	if st := r.Dump(at(1), false); len(st.Tiers) != 2 || st.Tiers[1].Tier != "full" || st.Tiers[1].InPolicy {
		t.Errorf("a retired tier with a waiter is missing from %+v", st)
	}
	v, _ := r.offer("3", 1, request())
	expect(t, "a newcomer", v, "admitted small ")
	held.Ticket.Done(at(2))
	expect(t, "the waiter of the retired tier", r.got("2"), "admitted full ")
	r.got("2").Ticket.Done(at(3))
	if st := r.Dump(at(3), false); len(st.Tiers) != 1 {
		t.Errorf("an idle retired tier is still shown: %+v", st)
	}
	r.Apply(at(4), compile(t, twoTiers))
	if st := r.Dump(at(4), false); st.Tiers[0].Used != 0 || st.Tiers[1].Used != 1 {
		t.Errorf("after coming back: %+v, want only small's slot held", st.Tiers)
	}
}

func TestCloseAlsoReachesTiersOfALaterReload(t *testing.T) {
	r := newRig(t, twoTiers)
	r.offer("1", 0, request())
	r.offer("2", 0, request())
	r.Close(at(5), outcome.ShedShuttingDown)
	expect(t, "waiter", r.got("2"), "shed shutting_down full 503")
	r.Apply(at(6), compile(t, `
version: 1
tiers: {new: {model: {concurrency: 5, queue: 0}}}
routes: [{name: chat, match: {path: {prefix: /v1}}, ladder: [new]}]
`))
	v, _ := r.offer("3", 7, request())
	expect(t, "newcomer", v, "shed shutting_down new 503")

	r = newRig(t, twoTiers)
	for i, want := range []string{"admitted full ", "parked until 2450", "admitted small queue_pressure", "parked until 2450"} {
		v, _ := r.offer(fmt.Sprint(i), 0, request())
		expect(t, "filling up", v, want)
	}
	r.Close(at(5), outcome.ShedShuttingDown)
	expect(t, "a waiter that a better tier had refused before", r.got("3"), "shed shutting_down small 503")
}

func TestRungsEnvoyHasNoRouteForAreLeftOut(t *testing.T) {
	r := newRig(t, twoTiers)
	req := request()
	req.Routes = map[string]bool{"chat/small": true, "batch/small": true}
	v, _ := r.offer("1", 0, req)
	expect(t, "full is unknown to Envoy", v, "admitted small upstream_error")
	req.Routes = map[string]bool{"other/x": true}
	v, _ = r.offer("2", 0, req)
	expect(t, "nothing is known: Envoy decides, the limiter still counts", v, "admitted full ")
}

func TestABudgetOfLessThanAMillisecondIsGone(t *testing.T) {
	r := newRig(t, twoTiers)
	for _, h := range [][]string{{"x-budget-ms", "1"}, {headerGRPCTimeout, "1n"}, {headerGRPCTimeout, "999u"}} {
		v, _ := r.offer("x", 0, request(h...))
		expect(t, h[1], v, "shed deadline_expired  503")
	}
	v, _ := r.offer("y", 0, request("x-budget-ms", "2"))
	expect(t, "2 ms", v, "admitted full ")
}

// TestShedsSpreadWhenTheyAskToBeRepeated: callers refused at one instant must not all return at one.
func TestShedsSpreadWhenTheyAskToBeRepeated(t *testing.T) {
	r := newRig(t, twoTiers)
	for range 4 { // one runs and one waits, at each tier
		r.offer("full house", 0, request())
	}
	const n, fifths = 1000, 5
	var seen [fifths]int
	for range n {
		v, _ := r.offer("refused", 0, request())
		if v.Kind != Shed || v.RetryAfter < 500*ms || v.RetryAfter > 1000*ms {
			t.Fatalf("%s, retry after %s, want a shed with 500 to 1000 ms", show(v), v.RetryAfter)
		}
		seen[min(int((v.RetryAfter-500*ms)/(100*ms)), fifths-1)]++
	}
	for i, got := range seen {
		if got < n/fifths/2 || got > n/fifths*2 { // 7 standard deviations and more
			t.Errorf("%d of %d sheds ask to be repeated after %d to %d ms, want about %d", got, n, 500+i*100, 600+i*100, n/fifths)
		}
	}
}
