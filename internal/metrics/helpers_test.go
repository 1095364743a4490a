package metrics

import (
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "rewrite testdata/metrics.golden and docs/metrics.md")

// golden compares got with the file at path, or rewrites the file under -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run: go test ./internal/metrics -update)", err)
	}
	if string(want) != got {
		t.Errorf("%s differs (run: go test ./internal/metrics -update, and read the diff)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// start makes metrics on a registry of their own that checks what collectors promise.
func start(t *testing.T, live Live) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m, err := New(reg, "v0.0.0", func() Live { return live })
	if err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// families is every metric there is, each with at least one sample.
func families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	m, reg := start(t, Live{Tiers: []Tier{{Name: "full", Limit: 4, Used: 3, UsedMax: 4, Waiting: 2, WaitMax: 8}}})
	m.Arrived("chat")
	m.Ignored("x-budget-ms")
	m.Replayed("hit")
	m.StoreFailed("lookup")
	m.Waited("full", "default", time.Millisecond)
	m.EnvoyStale(false)
	m.Reloaded(true, time.Unix(1, 0))
	m.Finished(Request{Route: "chat", Outcome: "degraded", Tier: "small", Degraded: "queue_pressure", UpstreamOutcome: "degraded"})
	m.Finished(Request{Route: "chat", Outcome: "truncated", Tier: "full", UpstreamOutcome: "truncated", FirstToken: time.Millisecond,
		Dialect: "generic", Terminal: "upstream_truncated", Cut: true, Sealed: true})
	m.Finished(Request{Route: "chat", Outcome: "shed", Shed: "queue_full", ShedTier: "full"})
	fs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// labels are the names of a family's labels.
func labels(f *dto.MetricFamily) []string {
	var names []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}
