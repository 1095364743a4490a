// Package metrics is brownout's Prometheus face: counters fed by what happens, gauges read at scrape time. Names and
// labels are a golden list; label values come from closed enums or from the policy. Any goroutine may call any method;
// none blocks.
package metrics

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// None is the label of a route or tier that does not apply.
const None = "none"

// waitBuckets hold the bound of the seed's alert (queue wait p95 above 250 ms) exactly.
var waitBuckets = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Request is what is counted of a request that has ended.
type Request struct {
	Route, Class       string
	Outcome, Source    string
	Tier, Degraded     string
	Answerer           string
	Retries            int
	Shed, ShedTier     string
	Status             int
	UpstreamOutcome    string
	Duration, Upstream time.Duration
	FirstToken         time.Duration
	Dialect, Terminal  string
	Cut, Sealed        bool
	Details            string
	Finish             string
	Input, Output      int
	Bytes              int64
}

// tokenBuckets are those of the time to first token in OpenTelemetry's conventions for generative AI.
var tokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}

// Metrics counts. Make one with New.
type Metrics struct {
	arrivals, requests, sheds, degraded, upstream, ignored, reloads *prometheus.CounterVec
	terminals, cuts, replays, storeFailures                         *prometheus.CounterVec
	retries                                                         prometheus.Counter
	queueWait, firstToken                                           *prometheus.HistogramVec
	lastReload, stale                                               prometheus.Gauge
}

// New registers everything with reg; live is read at each scrape. It fails when reg has these metrics already.
func New(reg prometheus.Registerer, version string, live func() Live) (*Metrics, error) {
	if err := reg.Register(newCollector(live)); err != nil { // first, since promauto would panic
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: "brownout_" + name, Help: help}, labels)
	}
	m := &Metrics{
		arrivals: counter("arrivals_total", "Requests that arrived, by route (none: no route matched).", "route"),
		requests: counter("requests_total", "Requests that ended, by how: each arrival ends in exactly one outcome.", "route", "outcome"),
		sheds:    counter("sheds_total", "Requests refused, by the tier and reason of the first refusal (none: before any tier was asked).", "tier", "reason"),
		degraded: counter("degraded_total", "Degraded answers, by the tier that answered and why: from a lower tier, a replay or a template, or ended by a frame of ours.", "tier", "reason"),
		upstream: counter("upstream_total", "Requests that went upstream, by tier and how they ended.", "tier", "outcome"),
		ignored:  counter("ignored_headers_total", "Request headers whose value was of no use and was ignored.", "header"),
		reloads:  counter("config_reloads_total", "Policy reloads, by result.", "result"),
		queueWait: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "brownout_queue_wait_seconds", Help: "Time in a tier's queue, zero included, of requests admitted or giving up.",
			Buckets: waitBuckets,
		}, []string{"tier", "class"}),
		terminals:     counter("terminal_frames_total", "Streams ended by a frame of ours, by dialect and why.", "dialect", "reason"),
		cuts:          counter("cuts_total", "Answers whose upstream died in the middle. sealed=false: not repaired, and a caller that left may be among them.", "sealed"),
		storeFailures: counter("store_failures_total", "Calls to the store of answers that failed or took too long; requests go on without it.", "op"),
		replays:       counter("replay_total", "What happened to kept answers and idempotency keys.", "result"),
		retries:       f.NewCounter(prometheus.CounterOpts{Name: "brownout_retries_total", Help: "Repeats by Envoy of requests that broke before an answer's headers."}),
		firstToken: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "brownout_first_token_seconds", Help: "Time from the slot to the first content of a stream.",
			Buckets: tokenBuckets,
		}, []string{"tier"}),
		lastReload: f.NewGauge(prometheus.GaugeOpts{
			Name: "brownout_config_last_reload_success_timestamp_seconds", Help: "Unix time of the last policy that was applied."}),
		stale: f.NewGauge(prometheus.GaugeOpts{
			Name: "brownout_envoy_stale", Help: "1 when the Envoy in front runs a configuration that does not fit the policy."}),
	}
	f.NewGaugeVec(prometheus.GaugeOpts{Name: "brownout_build_info", Help: "Always 1; the version is a label."}, []string{"version"}).
		WithLabelValues(version).Set(1)
	for _, result := range []string{"success", "error"} {
		m.reloads.WithLabelValues(result)
	}
	return m, nil
}

// Arrived counts an arrival.
func (m *Metrics) Arrived(route string) { m.arrivals.WithLabelValues(route).Inc() }

// Finished counts a request that has ended.
func (m *Metrics) Finished(r Request) {
	m.requests.WithLabelValues(r.Route, r.Outcome).Inc()
	if r.Shed != "" {
		m.sheds.WithLabelValues(orNone(r.ShedTier), r.Shed).Inc()
	}
	if r.Degraded != "" {
		answerer := r.Answerer
		if answerer == "" {
			answerer = r.Tier
		}
		m.degraded.WithLabelValues(orNone(answerer), r.Degraded).Inc()
	}
	if r.UpstreamOutcome != "" {
		m.upstream.WithLabelValues(r.Tier, r.UpstreamOutcome).Inc()
	}
	if r.Terminal != "" {
		m.terminals.WithLabelValues(r.Dialect, r.Terminal).Inc()
	}
	if r.Cut {
		m.cuts.WithLabelValues(strconv.FormatBool(r.Sealed)).Inc()
	}
	m.retries.Add(float64(r.Retries))
	if r.FirstToken > 0 {
		m.firstToken.WithLabelValues(r.Tier).Observe(r.FirstToken.Seconds())
	}
}

// Waited records the time a request spent in a tier's queue.
func (m *Metrics) Waited(tier, class string, d time.Duration) {
	m.queueWait.WithLabelValues(tier, class).Observe(d.Seconds())
}

// Ignored counts a request header of no use; names come from the policy and a fixed list.
func (m *Metrics) Ignored(header string) { m.ignored.WithLabelValues(header).Inc() }

// Replayed counts what happened to a kept answer or an idempotency key.
func (m *Metrics) Replayed(result string) { m.replays.WithLabelValues(result).Inc() }

// StoreFailed counts a call to the store that failed or took too long.
func (m *Metrics) StoreFailed(op string) { m.storeFailures.WithLabelValues(op).Inc() }

// EnvoyStale says whether Envoy's configuration fits.
func (m *Metrics) EnvoyStale(stale bool) {
	v := 0.0
	if stale {
		v = 1
	}
	m.stale.Set(v)
}

// Reloaded counts a policy reload that ended at now. The first load counts too.
func (m *Metrics) Reloaded(ok bool, now time.Time) {
	if !ok {
		m.reloads.WithLabelValues("error").Inc()
		return
	}
	m.reloads.WithLabelValues("success").Inc()
	m.lastReload.Set(float64(now.UnixMilli()) / 1000)
}

func orNone(s string) string {
	if s == "" {
		return None
	}
	return s
}
