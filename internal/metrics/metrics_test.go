package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// The names are an interface: dashboards and alerts hang on them.
func TestNamesLabelsTypesAndHelpAreGolden(t *testing.T) {
	var b strings.Builder
	for _, f := range families(t) {
		fmt.Fprintf(&b, "%s{%s} %s\n\t%s\n", f.GetName(), strings.Join(labels(f), ","), typeOf(f), f.GetHelp())
		if bounds := buckets(f); bounds != "" {
			fmt.Fprintf(&b, "\tbuckets: %s\n", bounds)
		}
	}
	golden(t, "testdata/metrics.golden", b.String())
}

func typeOf(f *dto.MetricFamily) string { return strings.ToLower(f.GetType().String()) }

// buckets are the upper bounds of a histogram.
func buckets(f *dto.MetricFamily) string {
	var bounds []string
	for _, k := range f.GetMetric()[0].GetHistogram().GetBucket() {
		bounds = append(bounds, fmt.Sprint(k.GetUpperBound()))
	}
	return strings.Join(bounds, " ")
}

func TestNamesFollowThePrometheusConventions(t *testing.T) {
	_, reg := start(t, Live{Tiers: []Tier{{Name: "full"}}})
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestARequestIsCountedWhereItBelongs(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want string // of the four counters of ended requests
	}{
		{"an answer of the first tier",
			Request{Route: "chat", Class: "high", Outcome: "ok", Source: "upstream", Tier: "full", Status: 200, UpstreamOutcome: "ok"},
			`brownout_requests_total{outcome="ok",route="chat"} 1
			 brownout_upstream_total{outcome="ok",tier="full"} 1`},
		{"an answer of a lower tier",
			Request{Route: "chat", Outcome: "degraded", Tier: "small", Degraded: "queue_pressure", Status: 200, UpstreamOutcome: "degraded"},
			`brownout_degraded_total{reason="queue_pressure",tier="small"} 1
			 brownout_requests_total{outcome="degraded",route="chat"} 1
			 brownout_upstream_total{outcome="degraded",tier="small"} 1`},
		{"a shed",
			Request{Route: "chat", Outcome: "shed", Shed: "queue_full", ShedTier: "full", Status: 503},
			`brownout_requests_total{outcome="shed",route="chat"} 1
			 brownout_sheds_total{reason="queue_full",tier="full"} 1`},
		{"a shed before any tier was asked",
			Request{Route: "chat", Outcome: "shed", Shed: "deadline_expired", Status: 503},
			`brownout_requests_total{outcome="shed",route="chat"} 1
			 brownout_sheds_total{reason="deadline_expired",tier="none"} 1`},
		{"a caller that left the queue",
			Request{Route: "chat", Outcome: "client_aborted"},
			`brownout_requests_total{outcome="client_aborted",route="chat"} 1`},
		{"a request no route matched",
			Request{Route: None, Outcome: "unmatched"},
			`brownout_requests_total{outcome="unmatched",route="none"} 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, reg := start(t, Live{})
			m.Finished(c.r)
			expect(t, reg, c.want, "brownout_requests_total", "brownout_upstream_total", "brownout_degraded_total", "brownout_sheds_total")
		})
	}
}

// expect compares samples with lines of the exposition format; help and types are the golden file's matter.
func expect(t *testing.T, reg prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	fs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	about := map[string]string{}
	for _, f := range fs {
		about[f.GetName()] = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", f.GetName(), f.GetHelp(), f.GetName(), typeOf(f))
	}
	var b strings.Builder
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(strings.ReplaceAll(line, " ", "{"), "{")
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			family := strings.TrimSuffix(name, suffix)
			b.WriteString(about[family])
			delete(about, family)
		}
		b.WriteString(line + "\n")
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(b.String()), names...); err != nil {
		t.Error(err)
	}
}

func TestWaitsAreSharpAtTheAlertsBound(t *testing.T) {
	m, reg := start(t, Live{})
	for _, d := range []time.Duration{0, 250 * time.Millisecond, 250*time.Millisecond + 1} {
		m.Waited("full", "high", d)
	}
	fs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if f.GetName() != "brownout_queue_wait_seconds" {
			continue
		}
		for _, k := range f.GetMetric()[0].GetHistogram().GetBucket() {
			if k.GetUpperBound() == 0.25 && k.GetCumulativeCount() == 2 {
				return
			}
		}
	}
	t.Error("no bucket ends at 0.25 s with the two waits of at most that")
}

func TestGaugesAreReadAtTheScrape(t *testing.T) {
	m, reg := start(t, Live{Unaccounted: 2, Tiers: []Tier{
		{Name: "full", Limit: 4, Used: 3, UsedMax: 4, Waiting: 2, WaitMax: 8}, {Name: "small", Limit: 16}}})
	m.EnvoyStale(true)
	expect(t, reg, `brownout_limit{tier="full"} 4
		brownout_limit{tier="small"} 16
		brownout_inflight{tier="full"} 3
		brownout_inflight{tier="small"} 0
		brownout_inflight_max{tier="full"} 4
		brownout_inflight_max{tier="small"} 0
		brownout_queue_depth{tier="full"} 2
		brownout_queue_depth{tier="small"} 0
		brownout_queue_depth_max{tier="full"} 8
		brownout_queue_depth_max{tier="small"} 0
		brownout_unaccounted 2
		brownout_envoy_stale 1
		brownout_build_info{version="v0.0.0"} 1`,
		"brownout_limit", "brownout_inflight", "brownout_inflight_max", "brownout_queue_depth", "brownout_queue_depth_max",
		"brownout_unaccounted", "brownout_envoy_stale", "brownout_build_info")
	m.EnvoyStale(false)
	expect(t, reg, `brownout_envoy_stale 0`, "brownout_envoy_stale")
}

func TestReloadsAreCountedAndDated(t *testing.T) {
	m, reg := start(t, Live{})
	reloads := func(want string) {
		t.Helper()
		expect(t, reg, want, "brownout_config_reloads_total", "brownout_config_last_reload_success_timestamp_seconds")
	}
	reloads(`brownout_config_reloads_total{result="error"} 0
		brownout_config_reloads_total{result="success"} 0
		brownout_config_last_reload_success_timestamp_seconds 0`)
	m.Reloaded(true, time.UnixMilli(1500))
	m.Reloaded(false, time.UnixMilli(9000))
	reloads(`brownout_config_reloads_total{result="error"} 1
		brownout_config_reloads_total{result="success"} 1
		brownout_config_last_reload_success_timestamp_seconds 1.5`)
}

func TestASecondRegistrationIsAnError(t *testing.T) {
	_, reg := start(t, Live{})
	if _, err := New(reg, "v0.0.0", func() Live { return Live{} }); err == nil {
		t.Error("the same metrics were registered twice")
	}
}
