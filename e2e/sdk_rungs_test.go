package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// sdkRungPolicy has a path in front of the SDK's own for each rung. The narrow tier is held while the SDKs ask.
const sdkRungPolicy = `version: 1
budget: {max: 10m}
tiers:
  full:   {model: {concurrency: 64, queue: 64}}
  narrow: {model: {concurrency: 1, queue: 0}}
  small:  {model: {concurrency: 64, queue: 64}}
  cached: {cache: {stale_for: 1h}}
  canned: {template: {text: "We are at capacity."}}
routes:
- {name: full, match: {path: {prefix: /full}}, ladder: [full], cache: {ttl: 1h, sampled: true}}
- {name: small, match: {path: {prefix: /small}}, ladder: [narrow, small], cache: {ttl: 1h, sampled: true}}
- {name: stale, match: {path: {prefix: /stale}}, ladder: [full, cached], cache: {ttl: 1ms, sampled: true}}
- {name: canned, match: {path: {prefix: /canned}}, ladder: [narrow, canned]}
`

const sdkTemplate = "We are at capacity."

// sdkRung is a rung as SDKs reach it: by a path, in a pass over all their rows.
type sdkRung struct {
	name, path string
	text       string
	outcome    string // brownout's, of every request
	tier       string // under which they are counted as degraded, "" not at all
	reason     string
}

// The passes. The second over a path finds what the first left behind.
var sdkRungs = []sdkRung{
	{"full", "/full", sdkWhole, "ok", "", ""},
	{"replay of full", "/full", sdkWhole, "replayed", "", ""},
	{"small", "/small", sdkWhole, "degraded", "small", "queue_pressure"},
	{"replay of small", "/small", sdkWhole, "replayed", "small", "queue_pressure"},
	{"to be stale", "/stale", sdkWhole, "ok", "", ""},
	{"stale", "/stale", sdkWhole, "upstream_error", "full", "stale"},
	{"template", "/canned", sdkTemplate, "degraded", "canned", "queue_pressure"},
}

// TestSDKRungs: whatever rung answers, every stock SDK reads a whole answer of it and raises nothing.
func TestSDKRungs(t *testing.T) {
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: sdkRungPolicy, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
	cases := sdkRungCases(u)
	u.add("held", script{header: map[string]string{"content-type": "application/json"}, end: hang})
	defer s.holdTier(t, "/canned", "narrow")()
	for _, rung := range sdkRungs {
		t.Run(rung.name, func(t *testing.T) {
			if rung.name == "stale" {
				u.fail()
				defer sdkRungCases(u)
			}
			s.runRung(t, rung, cases)
		})
	}
}

// runRung lets every SDK ask once and holds what they saw to the rung.
func (s *stack) runRung(t *testing.T, rung sdkRung, cases map[string][]sdkCase) {
	t.Helper()
	degraded := func() int {
		return s.metric("brownout_degraded_total", "tier", rung.tier, "reason", rung.reason)
	}
	ended, marked := s.metric("brownout_requests_total", "outcome", rung.outcome), 0
	if rung.tier != "" {
		marked = degraded()
	}
	seen := startDrivers(t, "http://"+s.envoy.Addr+rung.path, cases)()
	for _, row := range sdkRows {
		got := seen[[2]string{row.name, "rung"}]
		if got.Row == "" || got.Text != rung.text || got.Error != "" || got.Tool != "" || !slices.Contains(sdkComplete, got.Finish) {
			t.Errorf("%v, want a whole answer: %q", got, rung.text)
		}
	}
	testkit.Eventually(t, 5*time.Second, func() bool {
		f := s.scrape()
		return sumMetric(f["brownout_inflight"], "tier", "full") == 0 && sumMetric(f["brownout_inflight"], "tier", "small") == 0
	}, "slots are left over")
	if n := s.metric("brownout_requests_total", "outcome", rung.outcome) - ended; n != len(sdkRows) {
		t.Errorf("%d requests ended as %s, want all %d: %v", n, rung.outcome, len(sdkRows), s.scrape()["brownout_requests_total"])
	}
	if rung.tier == "" {
		return
	}
	if n := degraded() - marked; n != len(sdkRows) {
		t.Errorf("%d counted as degraded on %s for %s, want all %d", n, rung.tier, rung.reason, len(sdkRows))
	}
}

// sdkRungCases are the cases of all drivers; the upstream answers all of them well.
func sdkRungCases(u *scripted) map[string][]sdkCase {
	cases := map[string][]sdkCase{}
	for _, row := range sdkRows {
		script := row.dialect.jsonScript
		if row.stream {
			script = row.dialect.streamScript
		}
		k, v := u.add(row.dialect.scriptName(row.stream, "normal"), script("normal"))
		headers := map[string]string{k: v, "x-budget-ms": "9000", "x-goog-user-project": strings.ReplaceAll(row.name, " ", "-")} // each row has an answer of its own
		if row.dialect == &sdkOllama {
			headers["authorization"] = "Bearer none" // it sends none by itself, and for nobody nothing is kept
		}
		cases[row.driver] = append(cases[row.driver], sdkCase{Row: row.name, Scenario: "rung", Headers: headers, Tools: true, MaxTokens: 64})
	}
	return cases
}

// fail makes the upstream fail in all its scripts.
func (u *scripted) fail() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name := range u.scripts {
		u.scripts[name] = script{status: http.StatusInternalServerError, header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"error":{"message":"engine failed"}}`}}
	}
}

// holdTier keeps the one slot of a tier until the returned function is called.
func (s *stack) holdTier(t *testing.T, route, tier string) (release func()) {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background()) // a release may come after the test's own context has ended
	done := make(chan struct{})
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(done)
		s.postAs(ctx, c, route+"/chat/completions", `{"model":"hold"}`, "x-script", "held", "x-budget-ms", "600000")
	}()
	testkit.Eventually(t, 10*time.Second, func() bool { return s.metric("brownout_inflight", "tier", tier) == 1 }, fmt.Sprintf("the slot of %s was never taken", tier))
	return func() { leave(); <-done }
}
