package extproc

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/envoy"
)

// otherHash is what an Envoy with another configuration announces.
const otherHash = "0000000000000000"

// told asks once, with what an Envoy announces and the details it gives, and returns what the observer has been told.
func (r *rig) told(details string, md ...string) []bool {
	c := r.open(md...)
	c.ask()
	c.send(answer(200, details))
	c.next()
	c.close()
	return r.obs.stale
}

func (r *rig) expectTold(what string, got []bool, want ...bool) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s at %s: -want +got\n%s", what, r.since(), diff)
	}
}

func TestAnEnvoyWithAnotherConfigurationIsStaleUntilAMinuteAfterItsLastSign(t *testing.T) {
	var log strings.Builder
	bubble(t, narrowPolicy, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(r *rig) {
		fits := *r.srv.wantHash.Load()
		r.expectTold("one that announces nothing", r.told("via_upstream"))
		r.expectTold("one that fits", r.told("via_upstream", envoy.MetadataConfigHash, fits))
		r.expectTold("another", r.told("via_upstream", envoy.MetadataConfigHash, otherHash), true)
		time.Sleep(40 * time.Second)
		r.expectTold("another once more", r.told("via_upstream", envoy.MetadataConfigHash, otherHash), true)
		time.Sleep(40 * time.Second)
		r.expectTold("one that fits, while others may not", r.told("via_upstream", envoy.MetadataConfigHash, fits), true)
		time.Sleep(20 * time.Second)
		r.expectTold("a minute after", r.told("via_upstream", envoy.MetadataConfigHash, fits), true, false)
	})
	if n := strings.Count(log.String(), "announced="+otherHash); n != 1 {
		t.Errorf("%d complaints about one configuration, want 1:\n%s", n, log.String())
	}
}

func TestAPolicyThatNeedsAnotherConfigurationMakesEnvoyStale(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		old := *r.srv.wantHash.Load()
		r.expectTold("before", r.told("via_upstream", envoy.MetadataConfigHash, old))
		r.srv.Apply(compile(t, strings.ReplaceAll(narrowPolicy, "full", "large")))
		r.expectTold("after", r.told("via_upstream", envoy.MetadataConfigHash, old), true)
	})
}

func TestAnEnvoyThatDoesNotSayWhoAnsweredIsStale(t *testing.T) {
	var log strings.Builder
	bubble(t, narrowPolicy, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(r *rig) {
		r.expectTold("without attributes", r.told(""), true)
		r.expectTold("again", r.told(""), true)
	})
	if n := strings.Count(log.String(), "response.code_details"); n != 1 {
		t.Errorf("%d complaints, want 1:\n%s", n, log.String())
	}
}

// What Envoys announce is remembered within a bound, however many different ones there are.
func TestWhatIsRememberedOfEnvoysIsBounded(t *testing.T) {
	srv := New(compile(t, narrowPolicy), Options{})
	defer srv.Close()
	for i := range 10 * maxFitSeen {
		known := srv.checkHash(time.Now(), announced{hash: fmt.Sprint(i), routes: fmt.Sprintf("chat/t%d", i)})
		if want := fmt.Sprintf("chat/t%d", i); len(known) != 1 || !known[want] {
			t.Fatalf("known %v, want %s", known, want)
		}
	}
	if n, m := len(srv.fit.warned), len(srv.fit.routings); n > maxFitSeen || m > maxFitSeen {
		t.Errorf("%d complaints and %d announcements remembered, want at most %d of each", n, m, maxFitSeen)
	}
}

// An Envoy that is behind the policy has no route for a new tier: a request must not be sent there.
func TestATierEnvoyHasNoRouteForIsPassedOver(t *testing.T) {
	const src = `
version: 1
tiers:
  new:  {model: {concurrency: 1, queue: 0}}
  full: {model: {concurrency: 1, queue: 0}}
routes:
- name: chat
  ladder: [new, full]
  stream: false
`
	for _, c := range []struct{ name, hash, routes, tier string }{
		{"an Envoy behind", otherHash, "chat/full", "full"},
		{"another Envoy, with a route for it", otherHash, "chat/new,chat/full", "new"},
		{"another Envoy that does not say", otherHash, "", "new"},
		{"one that has no route for any", otherHash, "talk/full", "new"},
		{"one that fits", "", "", "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, src, Options{}, func(r *rig) {
				hash := c.hash
				if hash == "" {
					hash = *r.srv.wantHash.Load()
				}
				s := r.open(envoy.MetadataConfigHash, hash, envoy.MetadataRoutes, c.routes)
				s.expect("reply", s.ask(), "continue x-deadline-covers=first_content x-deadline-remaining-ms=2450 x-tier="+c.tier)
				s.finish()
			})
		})
	}
}
