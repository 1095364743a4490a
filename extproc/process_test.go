package extproc

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/envoy-brownout/brownout/envoy"
)

const admittedAtOnce = "continue x-deadline-covers=first_content x-deadline-remaining-ms=2450 x-tier=full"

// refusal is what a caller sees of a shed.
func refusal(reason string) string {
	return `reply 503 {"error":{"message":"capacity: ` + reason + `","type":"capacity","param":null,"code":"` + reason + `"},"reason":"` + reason + `"}`
}

func TestAWaitingRequestIsServedWhenASlotComesFree(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		first := r.open()
		first.expect("first", first.ask(), admittedAtOnce)
		second := r.open()
		second.send(chat("x-priority", "high"))
		second.expect("told to wait", second.next(), "extend 2.7s")
		time.Sleep(100 * ms)
		first.finish()
		second.expect("second", second.next(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=2350 x-tier=full")
		second.finish()
		if diff := cmp.Diff([]string{"full/default 0s", "full/high 100ms"}, r.obs.waits); diff != "" {
			t.Errorf("waits -want +got\n%s", diff)
		}
		want := Record{Route: "chat", Class: "high", Outcome: "ok", Source: "upstream", Tier: "full", Status: 200,
			UpstreamOutcome: "ok", Duration: 100 * ms}
		if got := r.obs.last(); got != want {
			t.Errorf("record\n got %+v\nwant %+v", got, want)
		}
	})
}

func TestATimeoutIsExtendedOnceUntilTheWaitEnds(t *testing.T) {
	const src = `
version: 1
tiers:
  full:  {model: {concurrency: 1, queue: 1}}
  small: {model: {concurrency: 1, queue: 1}}
routes:
- name: chat
  ladder: [full, small]
  stream: false
`
	bubble(t, src, Options{}, func(r *rig) {
		// Both tiers are taken, and the queue of the second one too, by requests that stay.
		r.open().ask("x-budget-ms", "10000")
		r.open().send(chat("x-budget-ms", "10000"))
		synctest.Wait()
		r.open().ask("x-budget-ms", "10000")
		c := r.open()
		c.send(chat("x-budget-ms", "1000", "x-max-queue-ms", "400"))
		c.expect("waits for the second tier", c.next(), "extend 1.2s")
		c.expect("and is refused when it has waited long enough", c.next(), refusal("queue_full"))
		if got := r.since(); got != 400*ms {
			t.Errorf("refused at %s, want 400ms", got)
		}
		c.close()
	})
}

func TestARequestThatWaitsTooLongIsRefusedAtItsKillInstant(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		r.open().ask("x-budget-ms", "10000")
		c := r.open()
		c.send(chat())
		c.expect("waits", c.next(), "extend 2.7s")
		m, err := c.s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.since(); got != 2450*ms {
			t.Errorf("refused at %s, want 2.45s", got)
		}
		im := m.GetImmediateResponse()
		c.expect("the reply", show(m), refusal("deadline_expired"))
		got := headersOf(im)
		for _, name := range []string{"retry-after-ms", "retry-after"} {
			if got[name] == "" {
				t.Errorf("%s is missing", name)
			}
			delete(got, name)
		}
		want := map[string]string{"content-type": "application/json", "x-should-retry": "false",
			"x-brownout-source": "shed", "x-degraded": "false"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers -want +got\n%s", diff)
		}
		if im.GetDetails() != "brownout_shed" {
			t.Errorf("details %q", im.GetDetails())
		}
		rec := Record{Route: "chat", Class: "default", Outcome: "shed", Source: "shed", Shed: "deadline_expired",
			ShedTier: "full", Status: 503, Duration: 2450 * ms}
		if got := r.obs.last(); got != rec {
			t.Errorf("record\n got %+v\nwant %+v", got, rec)
		}
	})
}

func headersOf(im *pb.ImmediateResponse) map[string]string {
	got := map[string]string{}
	for _, h := range im.GetHeaders().GetSetHeaders() {
		got[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	return got
}

func TestASilentUpstreamIsEndedWith504AndItsSlotIsFree(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		silent := r.open()
		silent.expect("silent", silent.ask(), admittedAtOnce)
		waits := r.open()
		waits.send(chat("x-budget-ms", "4000"))
		m, err := silent.s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		silent.expect("at the deadline", show(m), `reply 504 {"error":{"message":"deadline: deadline","type":"deadline","param":null,"code":"deadline"},"reason":"deadline"}`)
		want := map[string]string{"content-type": "application/json", "x-should-retry": "false",
			"x-brownout-source": "deadline", "x-degraded": "false"}
		if diff := cmp.Diff(want, headersOf(m.GetImmediateResponse())); diff != "" {
			t.Errorf("headers -want +got\n%s", diff)
		}
		waits.expect("who waited", waits.reply(), "continue x-deadline-covers=whole x-deadline-remaining-ms=1500 x-tier=full")
		if got := r.since(); got != 2450*ms {
			t.Errorf("at %s, want 2.45s", got)
		}
		waits.finish()
	})
}

func TestACallerThatLeavesFreesItsPlace(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		running, queued := r.open(), r.open()
		running.ask()
		queued.send(chat())
		queued.expect("queued", queued.next(), "extend 2.7s")
		time.Sleep(10 * ms)
		queued.abort()
		synctest.Wait()
		if r.waiting() != 0 || r.obs.last().Outcome != "client_aborted" || r.obs.last().Tier != "" {
			t.Errorf("after leaving the queue: %d waiting, record %+v", r.waiting(), r.obs.last())
		}
		time.Sleep(10 * ms)
		running.abort()
		synctest.Wait()
		want := Record{Route: "chat", Class: "default", Outcome: "client_aborted", Tier: "full",
			UpstreamOutcome: "client_aborted", Duration: 20 * ms, Upstream: 20 * ms}
		if got := r.obs.last(); got != want {
			t.Errorf("record\n got %+v\nwant %+v", got, want)
		}
		if r.used() != 0 {
			t.Errorf("%d slots held by nobody", r.used())
		}
		next := r.open()
		next.expect("next", next.ask(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=2450 x-tier=full")
		next.finish()
	})
}

// A slot comes free at the very instant at which the one who waits for it leaves; who comes next must get it.
func TestAGrantThatRacesAnAbortLosesNoSlot(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		for range 100 {
			holder, leaver := r.open(), r.open()
			holder.ask()
			leaver.send(chat())
			synctest.Wait()
			var both sync.WaitGroup
			both.Go(holder.abort)
			both.Go(leaver.abort)
			both.Wait()
			synctest.Wait()
			if r.used() != 0 || r.waiting() != 0 {
				t.Fatalf("%d slots held, %d waiting after both have left", r.used(), r.waiting())
			}
		}
		if diff := cmp.Diff(map[string]int{"client_aborted": 200}, r.obs.outcomes()); diff != "" {
			t.Errorf("outcomes -want +got\n%s", diff)
		}
	})
}

func TestARequestNoRouteMatchesPassesAndNothingMoreIsHeardOfIt(t *testing.T) {
	bubble(t, seedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.send(request("GET", "/healthz", "x-tier", "planted"))
		got, err := c.s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want := &mode.ProcessingMode{
			RequestHeaderMode: mode.ProcessingMode_SKIP, ResponseHeaderMode: mode.ProcessingMode_SKIP,
			RequestBodyMode: mode.ProcessingMode_NONE, ResponseBodyMode: mode.ProcessingMode_NONE,
			RequestTrailerMode: mode.ProcessingMode_SKIP, ResponseTrailerMode: mode.ProcessingMode_SKIP,
		}
		if diff := cmp.Diff(want, got.GetModeOverride(), protocmp.Transform()); diff != "" {
			t.Errorf("mode override -want +got\n%s", diff)
		}
		hm := got.GetRequestHeaders().GetResponse().GetHeaderMutation()
		if len(hm.GetSetHeaders()) != 0 || !strings.Contains(strings.Join(hm.GetRemoveHeaders(), " "), "x-tier") {
			t.Errorf("header mutation %v, want spoofed names removed and nothing set", hm)
		}
		c.close()
		if diff := cmp.Diff([]string{"none"}, r.obs.arrived); diff != "" {
			t.Errorf("arrivals -want +got\n%s", diff)
		}
		if got := r.obs.last(); got.Route != "none" || got.Outcome != "unmatched" {
			t.Errorf("record %+v", got)
		}
	})
}

func TestWhatEnvoyAnnouncesBoundsWaitAndDeadline(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		r.open().ask("x-budget-ms", "10000")
		c := r.open(envoy.MetadataMaxWait, "1000")
		c.send(chat())
		c.expect("the longest wait less the margin, plus it", c.next(), "extend 1s")
		c.expect("then", c.next(), refusal("deadline_expired"))
		if got := r.since(); got != 750*ms {
			t.Errorf("refused at %s, want 750ms", got)
		}
	})
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		c := r.open(envoy.MetadataRouteTimeout, "1000")
		c.expect("a route timeout bounds the whole", c.ask(), "continue x-deadline-covers=whole x-deadline-remaining-ms=712 x-tier=full")
		c.expect("and we end before it", c.next(), `reply 504 {"error":{"message":"deadline: deadline","type":"deadline","param":null,"code":"deadline"},"reason":"deadline"}`)
		if got := r.since(); got != 712500*time.Microsecond {
			t.Errorf("ended at %s, want 712.5ms: 250 ms before the timeout, less the reserve of 5 %%", got)
		}
	})
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		c := r.open(envoy.MetadataRouteTimeout, "-5", envoy.MetadataMaxWait, "soon")
		c.expect("nonsense is as if nothing was announced", c.ask(), admittedAtOnce)
		c.finish()
	})
}

func TestAHeaderOfNoUseIsCountedOnceForItsRequest(t *testing.T) {
	bubble(t, seedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.expect("garbage is ignored", c.ask("x-budget-ms", "1e3", "x-priority", "highest"), admittedAtOnce)
		c.finish()
		if diff := cmp.Diff([]string{"x-budget-ms", "x-priority"}, r.obs.ignored); diff != "" {
			t.Errorf("ignored -want +got\n%s", diff)
		}
	})
}

func TestAReloadKeepsWhatRunsAndWhatWaits(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		running, waiting := r.open(), r.open()
		running.ask()
		waiting.send(chat())
		synctest.Wait()
		r.srv.Apply(compile(t, `
version: 1
tiers:
  large: {model: {concurrency: 1, queue: 0}}
routes:
- name: talk
  ladder: [large]
  stream: false
  shed: {status: {queue_full: 429}}
`))
		first, second := r.open(), r.open()
		first.expect("the new tier", first.ask(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=2450 x-tier=large")
		second.expect("the new statuses", second.ask(), `reply 429 {"error":{"message":"capacity: queue_full","type":"capacity","param":null,"code":"queue_full"},"reason":"queue_full"}`)
		time.Sleep(50 * ms)
		running.finish()
		waiting.expect("who waited under the old one", waiting.reply(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=2400 x-tier=full")
		waiting.finish()
		first.finish()
		routes := map[string]int{}
		for _, rec := range r.obs.records {
			routes[rec.Route+" "+rec.Outcome]++
		}
		if diff := cmp.Diff(map[string]int{"chat ok": 2, "talk ok": 1, "talk shed": 1}, routes); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if r.srv.Policy().Routes[0].Name != "talk" {
			t.Errorf("policy in force: %+v", r.srv.Policy())
		}
	})
}

func TestShedRefusesWhatWaitsAndWhatComesAndLetsTheRestRun(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		running, waiting := r.open(), r.open()
		running.ask()
		waiting.send(chat())
		synctest.Wait()
		time.Sleep(30 * ms)
		r.srv.Shed()
		waiting.expect("who waits", waiting.reply(), refusal("shutting_down"))
		late := r.open()
		late.expect("who comes", late.ask(), refusal("shutting_down"))
		if got := r.since(); got != 30*ms {
			t.Errorf("refused at %s, want 30ms", got)
		}
		time.Sleep(30 * ms)
		running.finish()
		if diff := cmp.Diff(map[string]int{"ok": 1, "shed": 2}, r.obs.outcomes()); diff != "" {
			t.Errorf("outcomes -want +got\n%s", diff)
		}
	})
}

func TestBodiesNobodyAskedForAreAnsweredInKind(t *testing.T) {
	bubble(t, seedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.ask()
		for _, step := range []struct {
			send *pb.ProcessingRequest
			want string
		}{
			{requestBody(), "request body"}, {requestBody(), "request body"}, {requestTrailers(), "request trailers"},
			{answer(200, "via_upstream"), "answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason"},
			{responseBody(), "response body"}, {trailers(), "trailers"},
		} {
			c.send(step.send)
			c.expect(step.want, c.next(), step.want)
		}
		c.close()
	})
}

func TestAMessageOutOfOrderIsAnsweredAndLogged(t *testing.T) {
	var log strings.Builder
	o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	bubble(t, seedPolicy, o, func(r *rig) {
		c := r.open()
		c.send(trailers())
		c.expect("trailers first", c.next(), "trailers")
		c.expect("then the request", c.ask(), admittedAtOnce)
		for range 3 {
			c.send(trailers())
			c.expect("trailers before headers", c.next(), "trailers")
			time.Sleep(500 * ms)
		}
		c.finish()
		if n := strings.Count(log.String(), "unexpected message"); n != 1 {
			t.Errorf("%d complaints within seconds, want 1: who sends such messages decides how many there are\n%s", n, log.String())
		}
		time.Sleep(nagEvery)
		c = r.open()
		c.send(trailers())
		c.expect("trailers first", c.next(), "trailers")
		c.close()
		if n := strings.Count(log.String(), "unexpected message"); n != 2 {
			t.Errorf("%d complaints, want a second one later\n%s", n, log.String())
		}
	})
}

func TestAStreamThatEndsBeforeItsRequestCountsForNothing(t *testing.T) {
	bubble(t, seedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.close()
		if y := r.srv.Tally(); y != (Tally{}) {
			t.Errorf("books %+v, want empty", y)
		}
	})
}

func TestTheAlarmIsSilentOnceStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks := 0
		a := alarm{next: func() (time.Time, bool) { return time.Time{}, false }, tick: func(time.Time) { ticks++ }}
		a.stop()
		a.arm(time.Now().Add(ms))
		time.Sleep(2 * ms)
		synctest.Wait()
		if ticks != 0 {
			t.Errorf("%d ticks of an alarm that was stopped before it was armed", ticks)
		}
		b := alarm{next: a.next, tick: a.tick}
		b.arm(time.Now().Add(5 * ms))
		b.arm(time.Now().Add(2 * ms))
		b.arm(time.Now().Add(9 * ms))
		time.Sleep(3 * ms)
		synctest.Wait()
		if ticks != 1 {
			t.Errorf("%d ticks 3 ms on, want the one of the earliest time armed", ticks)
		}
		b.arm(time.Now().Add(ms))
		b.stop()
		time.Sleep(20 * ms)
		synctest.Wait()
		if ticks != 1 {
			t.Errorf("%d ticks, want none after stop", ticks)
		}
	})
}

func TestResetMaxStartsTheMaximaAfresh(t *testing.T) {
	bubble(t, seedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.ask()
		c.finish()
		r.srv.ResetMax()
		if got := r.srv.Dump(true).Tiers[0].UsedMax; got != 0 {
			t.Errorf("most in flight after the reset: %d, want 0", got)
		}
	})
}
