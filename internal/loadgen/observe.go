package loadgen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// maxMetrics bounds what is read of a metrics page.
const maxMetrics = 16 << 20

// Reset zeroes the stub's counters and brownout's maxima, as far as their addresses are known.
func (g *Generator) Reset(ctx context.Context) error {
	if g.cfg.Stub != "" {
		if err := g.post(ctx, g.cfg.Stub, stub.PathReset, "--stub"); err != nil {
			return err
		}
	}
	if g.cfg.Admin != "" {
		return g.post(ctx, g.cfg.Admin, "/debug/reset", "--admin")
	}
	return nil
}

// Quiet waits until nothing is in flight in the stub and nothing runs or waits in brownout.
func (g *Generator) Quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, quietWait, fmt.Errorf("not quiet after %s", quietWait))
	defer cancel()
	tick := time.NewTicker(quietPoll)
	defer tick.Stop()
	for {
		busy, err := g.busy(ctx)
		if err != nil || busy == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for quiet: %w: %s: is something else sending requests?", context.Cause(ctx), busy)
		}
	}
}

// busy says what is still going on; empty means nothing.
func (g *Generator) busy(ctx context.Context) (string, error) {
	if g.cfg.Stub != "" {
		s, err := g.stubStats(ctx)
		if err != nil {
			return "", err
		}
		if s.Inflight > 0 {
			return fmt.Sprintf("%d model calls in flight at %s", s.Inflight, g.cfg.Stub), nil
		}
	}
	if g.cfg.Metrics != "" {
		m, err := g.metrics(ctx)
		if err != nil {
			return "", err
		}
		for _, name := range []string{"brownout_inflight", "brownout_queue_depth"} {
			if v, _ := highest(m[name]); v > 0 {
				return fmt.Sprintf("%s is %g at %s", name, v, g.cfg.Metrics), nil
			}
		}
	}
	return "", nil
}

// observe adds to the report what others saw of the burst.
func (g *Generator) observe(ctx context.Context, r *Report) error {
	if g.cfg.Stub != "" {
		s, err := g.stubStats(ctx)
		if err != nil {
			return err
		}
		r.InflightMax, r.Started = new(s.InflightMax), new(s.Started)
		for i := range r.Waves {
			r.Waves[i].Upstream = new(s.StartedByWave[i+1])
		}
	}
	if g.cfg.Metrics == "" {
		return nil
	}
	m, err := g.metrics(ctx)
	if err != nil {
		return err
	}
	if v, ok := highest(m["brownout_queue_depth_max"]); ok {
		r.QueuedMax = new(int(v))
		return nil
	}
	return fmt.Errorf("%s has no brownout_queue_depth_max: is --metrics the address of brownout?", g.metricsURL())
}

func (g *Generator) stubStats(ctx context.Context) (stub.Stats, error) {
	var s stub.Stats
	text, err := g.call(ctx, http.MethodGet, strings.TrimSuffix(g.cfg.Stub, "/")+stub.PathStats, "--stub")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s%s: %w: is --stub the address of a stub?", g.cfg.Stub, stub.PathStats, err)
	}
	return s, nil
}

func (g *Generator) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	text, err := g.call(ctx, http.MethodGet, g.metricsURL(), "--metrics")
	if err != nil {
		return nil, err
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	m, err := p.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: is --metrics the address of brownout?", g.metricsURL(), err)
	}
	return m, nil
}

// metricsURL adds /metrics to an address without a path.
func (g *Generator) metricsURL() string {
	u, err := url.Parse(g.cfg.Metrics)
	if err != nil || u.Path != "" && u.Path != "/" {
		return g.cfg.Metrics
	}
	return u.JoinPath("metrics").String()
}

// highest is the largest gauge of a family; false means that it has none.
func highest(f *dto.MetricFamily) (float64, bool) {
	best, ok := 0.0, false
	for _, m := range f.GetMetric() {
		v := m.GetGauge().GetValue()
		if m.GetUntyped() != nil {
			v = m.GetUntyped().GetValue()
		}
		if !ok || v > best {
			best, ok = v, true
		}
	}
	return best, ok
}

func (g *Generator) post(ctx context.Context, base, path, flag string) error {
	_, err := g.call(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+path, flag)
	return err
}

func (g *Generator) call(ctx context.Context, method, address, flag string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	resp, err := g.control.Do(req)
	if err != nil {
		return nil, explain(err, address, flag)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMetrics))
	if err != nil {
		return nil, explain(err, address, flag)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s answered %d: check %s", method, address, resp.StatusCode, flag)
	}
	return text, nil
}
