package loadgen

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/internal/stub"
)

func TestTheArticlesBurstAdmitsTwelveOfSixty(t *testing.T) {
	for _, c := range []struct {
		name        string
		h2, bare    bool
		connections int
	}{
		{"HTTP/1.1", false, false, 60},
		{"HTTP/2", true, false, 4},
		{"sheds without a source header", false, true, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.bare)
			cfg := b.config()
			cfg.HTTP2 = c.h2
			g := open(t, cfg)
			if n := int(g.dials.Load()); n != c.connections {
				t.Errorf("%d connections were opened, want %d", n, c.connections)
			}
			for run := range 3 {
				r := burst(t, g, Plan{})
				want := Expect{
					Counts: map[string]int{"admitted": 12, "shed": 48, "other": 0, "inflight_max": 4, "queued_max": 8, "started": 12},
					P95:    2 * time.Second, Max: 2500 * time.Millisecond,
				}
				for _, check := range r.Checks(want) {
					if !check.OK {
						t.Errorf("run %d: %s", run, check)
					}
				}
				if diff := cmp.Diff(map[string]int{"queue_full": 48}, r.Reasons); diff != "" {
					t.Errorf("run %d: reasons (-want +got):\n%s", run, diff)
				}
				// Three batches of four, 50 ms each.
				if r.Max < Millis(150*time.Millisecond) || r.P50 < Millis(100*time.Millisecond) {
					t.Errorf("run %d: p50 %s and max %s are less than the work takes", run, r.P50, r.Max)
				}
				if r.Redials != 0 {
					t.Errorf("run %d opened %d connections", run, r.Redials)
				}
			}
			if b.limiter.resets != 3 {
				t.Errorf("maxima were reset %d times in 3 runs", b.limiter.resets)
			}
		})
	}
}

func TestTheTextOfARunHasTheArticlesShape(t *testing.T) {
	b := newBench(t, false)
	r := burst(t, open(t, b.config()), Plan{})
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks(Expect{Counts: map[string]int{"admitted": 12, "shed": 48}, P95: time.Second, Max: 2500 * time.Millisecond}) {
		text.WriteString(c.String() + "\n")
	}
	shape := regexp.MustCompile(`^admitted=12 shed=48 reasons=\{"queue_full":48\}
p50=\d+ms p95=\d+ms max=\d+ms inflight_max=4 queued_max=8
ok  48 shed as designed
ok  p95 \d+ms under 1000ms ceiling
ok  max \d+ms under 2500ms budget
$`)
	if !shape.MatchString(text.String()) {
		t.Errorf("got:\n%s", &text)
	}
}

func TestJitterBehindACeilingOfOneBeatsFixedDelay(t *testing.T) {
	b := newBench(t, false)
	cfg := b.config()
	cfg.Latency = "30ms"
	g := open(t, cfg)
	table, err := g.Compare(t.Context(), []Plan{
		{},
		{Retries: 3, Backoff: BackoffFixed, Delay: 500 * time.Millisecond},
		{Retries: 1, Backoff: BackoffFullJitter, Delay: 500 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := table.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &text)
	checks := table.Checks()
	if len(checks) != 4 {
		t.Errorf("%d checks, want 4", len(checks))
	}
	for _, c := range checks {
		t.Log(c)
		if !c.OK {
			t.Error(c)
		}
	}
	none, fixed, jitter := table.Rows[0].Report, table.Rows[1].Report, table.Rows[2].Report
	if none.Sent != 60 || len(none.Waves) != 1 || len(fixed.Waves) != 4 || len(jitter.Waves) != 2 {
		t.Errorf("waves: %d sent, %d, %d, %d", none.Sent, len(none.Waves), len(fixed.Waves), len(jitter.Waves))
	}
	for _, row := range table.Rows {
		upstream := 0
		for _, w := range row.Report.Waves {
			upstream += *w.Upstream
		}
		if upstream != *row.Report.Started || upstream != row.Report.Admitted {
			t.Errorf("%s: %d upstream calls by wave, %d in all, %d admitted", row.Name, upstream, *row.Report.Started, row.Report.Admitted)
		}
	}
}

func TestAttemptsNeverExceedTheCeiling(t *testing.T) {
	b := newBench(t, false)
	b.limiter.slots, b.limiter.queue = 0, 0 // everything is shed
	cfg := b.config()
	cfg.Clients = 5
	g := open(t, cfg)
	r := burst(t, g, Plan{Retries: 2, Backoff: BackoffFullJitter, Delay: time.Millisecond})
	if r.Sent != 15 || r.Sheds != 15 || r.Shed != 5 || r.Admitted != 0 {
		t.Errorf("got %+v", r)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := "admitted=0 shed=5 reasons={\"queue_full\":5}\np50=- p95=- max=- inflight_max=0 queued_max=0\n" +
		"sent=15 sheds=15 offered_per_wave=5/5/5 upstream_per_wave=0/0/0\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	for _, c := range r.Checks(Expect{P95: time.Second}) {
		if c.OK {
			t.Errorf("a percentile of nothing passed: %s", c)
		}
	}
}

func TestOtherOutcomesAreReportedByWhatHappened(t *testing.T) {
	s, err := stub.New(stub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	url := serveBoth(t, s)
	for mode, want := range map[string]map[string]int{
		"throttle": {"429": 3},
		"error":    {"500": 3},
		"evict":    {"503": 3},
		"truncate": {"transport: 200 cut: unexpected EOF": 3},
		"slow":     {"transport: timeout": 3},
	} {
		t.Run(mode, func(t *testing.T) {
			g := open(t, Config{URL: url, Clients: 3, Timeout: time.Second, Header: http.Header{"x-stub-mode": {mode}}})
			r := burst(t, g, Plan{})
			if diff := cmp.Diff(want, r.Others); diff != "" || r.Other != 3 || r.Admitted != 0 || r.Shed != 0 {
				t.Errorf("got %+v (-want +got):\n%s", r, diff)
			}
			var text strings.Builder
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text.String(), "\nother=3 {\"") {
				t.Errorf("the text hides them:\n%s", &text)
			}
			if checks := r.Checks(Expect{Counts: map[string]int{"shed": 0}}); checks[len(checks)-1].OK {
				t.Errorf("an expectation passed with others that nobody expected: %v", checks)
			}
		})
	}
}

func TestClassifyTellsShedsFromUpstreamErrors(t *testing.T) {
	const json503 = `{"error":"capacity","reason":"queue_full"}`
	cases := []struct {
		name, source, should, body string
		status                     int
		want                       attempt
	}{
		{"a shed", "shed", "", json503, 503, attempt{verdict: shed, key: "queue_full", answer: "503 shed"}},
		{"a shed mapped to 429", "shed", "", json503, 429, attempt{verdict: shed, key: "queue_full", answer: "429 shed"}},
		{"a shed nobody should retry", "shed", "false", `{"reason":"deadline_expired"}`, 503, attempt{verdict: shed, key: "deadline_expired", answer: "503 shed", final: true}},
		{"a shed without reason", "shed", "", "", 503, attempt{verdict: shed, key: "unknown", answer: "503 shed"}},
		{"no source, a reason", "", "", json503, 503, attempt{verdict: shed, key: "queue_full", answer: "503"}},
		{"no source, no reason", "", "", "{}", 503, attempt{verdict: other, key: "503", answer: "503"}},
		{"the upstream's 503", "upstream", "", json503, 503, attempt{verdict: other, key: "503 queue_full", answer: "503 upstream"}},
		{"a deadline", "deadline", "false", `{"error":"deadline","reason":"deadline"}`, 504, attempt{verdict: other, key: "504 deadline", answer: "504 deadline", final: true}},
		{"a template", "template", "", "{}", 200, attempt{verdict: admitted, answer: "200 template", final: true}},
		{"not found", "", "", "", 404, attempt{verdict: other, key: "404", answer: "404", final: true}},
	}
	for _, c := range cases {
		h := http.Header{}
		if c.source != "" {
			h.Set("x-brownout-source", c.source)
		}
		if c.should != "" {
			h.Set("x-should-retry", c.should)
		}
		var got attempt
		classify(&got, c.status, h, []byte(c.body))
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(attempt{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestErrorsNameTheAddressAndTheRemedy(t *testing.T) {
	b := newBench(t, false)
	nobody := "http://" + freeAddress(t)
	empty := serveBoth(t, http.NotFoundHandler())
	cases := []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"nothing listens at the target", func(c *Config) { c.URL = nobody }, []string{nobody, "nothing listens", "--url"}},
		{"nothing listens at the stub", func(c *Config) { c.Stub = nobody }, []string{nobody + stub.PathStats, "nothing listens", "--stub"}},
		{"nothing listens at the metrics", func(c *Config) { c.Metrics = nobody }, []string{nobody + "/metrics", "--metrics"}},
		{"nothing listens at the admin", func(c *Config) { c.Admin = nobody }, []string{nobody + "/debug/reset", "--admin"}},
		{"the stub is no stub", func(c *Config) { c.Stub = b.front + "/metrics?" }, []string{"--stub"}},
		{"the metrics are none", func(c *Config) { c.Metrics = b.back + "/healthz" }, []string{"--metrics"}},
		{"the metrics lack the gauge", func(c *Config) { c.Metrics = b.back + stub.PathWarm }, []string{"brownout_queue_depth_max", "--metrics"}},
		{"the admin has no reset", func(c *Config) { c.Admin = empty }, []string{"404", "--admin"}},
		{"no scheme", func(c *Config) { c.URL = "localhost:1" }, []string{"http://HOST:PORT/PATH"}},
		{"no clients", func(c *Config) { c.Clients = 0 }, []string{"clients"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := b.config()
			cfg.Clients = 2
			c.change(&cfg)
			g, err := Open(t.Context(), cfg)
			if err == nil {
				_, err = g.Burst(t.Context(), Plan{})
				g.Close()
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestABurstThatIsInterruptedSaysSoAndLeavesNoGoroutine(t *testing.T) {
	b := newBench(t, false)
	before := runtime.NumGoroutine()
	cfg := b.config()
	cfg.Latency = "1h"
	g, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := g.Burst(ctx, Plan{})
		ended <- err
	}()
	eventually(t, "calls reach the stub", func() bool { return b.stub.Stats().Inflight == 4 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	g.Close()
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestAnOpenedAndClosedGeneratorLeavesNoGoroutine(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		b := newBench(t, false)
		before := runtime.NumGoroutine()
		cfg := b.config()
		cfg.HTTP2, cfg.Stub, cfg.Metrics, cfg.Admin = h2, "", "", ""
		g, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		g.Close()
		eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	}
}
