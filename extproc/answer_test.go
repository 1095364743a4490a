package extproc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnAnswerIsLabelledAfterWhoWroteIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		details string
		headers []string
		want    string
		outcome string
	}{
		{"the upstream", 200, "via_upstream", nil,
			"answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "ok"},
		{"a stream of the upstream", 200, "via_upstream", []string{"content-type", "text/event-stream"},
			"answer x-accel-buffering=no x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "ok"},
		{"a brownout further in", 200, "via_upstream", []string{"x-degraded", "true"},
			"answer x-brownout-source=upstream x-degraded=true x-tier=full", "degraded"},
		{"Envoy, no connection", 503, "upstream_reset_before_response_started{remote_connection_failure}", nil,
			"answer x-brownout-source=envoy x-degraded=false -x-tier -x-degraded-reason", "upstream_error"},
		{"Envoy, its circuit breaker", 503, "upstream_reset_before_response_started{overflow}", nil,
			"answer x-brownout-source=envoy x-degraded=false -x-tier -x-degraded-reason", "overloaded"},
		{"Envoy, the request", 413, "request_payload_too_large", nil,
			"answer x-brownout-source=envoy x-degraded=false -x-tier -x-degraded-reason", "bad_request"},
		{"an Envoy that does not say", 503, "", nil,
			"answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "overloaded"},
		{"the upstream, throttling shortly", 429, "via_upstream", []string{"retry-after", "60"},
			"answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "throttled"},
		{"the upstream, throttling for long", 429, "via_upstream", []string{"retry-after", "61"},
			"answer x-brownout-source=upstream x-degraded=false x-should-retry=false x-tier=full -x-degraded-reason -retry-after -retry-after-ms", "throttled"},
		{"the upstream, back at a date close by", 503, "via_upstream", []string{"retry-after", "Sat, 01 Jan 2000 00:01:00 GMT"},
			"answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "overloaded"},
		{"the upstream, back at a date far off", 500, "via_upstream", []string{"retry-after", "Sat, 01 Jan 2000 00:01:01 GMT"},
			"answer x-brownout-source=upstream x-degraded=false x-should-retry=false x-tier=full -x-degraded-reason -retry-after -retry-after-ms", "upstream_error"},
		{"the upstream, with a retry-after of another kind", 503, "via_upstream", []string{"retry-after", "later"},
			"answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "overloaded"},
		{"the upstream, which refuses the request", 400, "via_upstream", []string{"retry-after", "3600"},
			"answer x-brownout-source=upstream x-degraded=false x-tier=full -x-degraded-reason", "bad_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, narrowPolicy, Options{}, func(r *rig) {
				s := r.open()
				s.ask()
				s.send(answer(c.status, c.details, c.headers...))
				s.expect("label", s.next(), c.want)
				s.close()
				if got := r.obs.last(); got.Outcome != c.outcome || got.Status != c.status {
					t.Errorf("record %+v, want outcome %s and status %d", got, c.outcome, c.status)
				}
			})
		})
	}
}

func TestALowerTierIsNamedAndCalledDegraded(t *testing.T) {
	const src = `
version: 1
tiers:
  full:  {model: {concurrency: 1, queue: 0}}
  small: {model: {concurrency: 1, queue: 0}}
routes:
- name: chat
  ladder: [full, small]
  stream: false
`
	bubble(t, src, Options{}, func(r *rig) {
		r.open().ask()
		c := r.open()
		c.expect("tier", c.ask(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=2450 x-tier=small")
		c.expect("label", c.answer(200), "answer x-brownout-source=upstream x-degraded-reason=queue_pressure x-degraded=true x-tier=small")
		c.close()
		if got := r.obs.last(); got.Outcome != "degraded" || got.Degraded != "queue_pressure" || got.Tier != "small" {
			t.Errorf("record %+v", got)
		}
	})
}

func TestASlotIsHeldUntilTheAnswerEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*call)
	}{
		{"trailers", func(c *call) { c.send(trailers()); c.expect("trailers", c.next(), "trailers") }},
		{"closure", func(c *call) { c.close() }},
		{"a cut or an abort", func(c *call) { c.abort(); c.expect("end", c.next(), "end") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, narrowPolicy, Options{}, func(r *rig) {
				s, waits := r.open(), r.open()
				s.ask()
				waits.send(chat())
				s.answer(200, "content-type", "text/event-stream")
				time.Sleep(time.Second)
				if r.used() != 1 || r.waiting() != 1 {
					t.Errorf("%d running, %d waiting while the answer runs", r.used(), r.waiting())
				}
				c.end(s)
				waits.expect("who waited", waits.reply(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=1450 x-tier=full")
				waits.finish()
				if diff := cmp.Diff(map[string]int{"ok": 2}, r.obs.outcomes()); diff != "" {
					t.Errorf("outcomes -want +got\n%s", diff)
				}
			})
		})
	}
}

func TestAnAnswerWithoutABodyEndsWithItsHeaders(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.ask()
		m := answer(204, "via_upstream")
		m.GetResponseHeaders().EndOfStream = true
		c.send(m)
		c.next()
		if r.used() != 0 || r.obs.last().Outcome != "ok" {
			t.Errorf("%d slots held, record %+v", r.used(), r.obs.last())
		}
		c.close()
	})
}

// After headers a missed deadline is counted, not acted on.
func TestADeadlineDuringTheAnswerIsCounted(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.ask("x-budget-ms", "1000")
		c.answer(200, "content-type", "text/event-stream")
		time.Sleep(2 * time.Second)
		c.send(trailers())
		c.expect("trailers", c.next(), "trailers")
		c.close()
		if got := r.obs.last(); got.Outcome != "deadline" || got.Status != 200 {
			t.Errorf("record %+v, want the outcome deadline and status 200", got)
		}
	})
}
