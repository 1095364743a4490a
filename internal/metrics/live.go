package metrics

import "github.com/prometheus/client_golang/prometheus"

// Live is what is read at a scrape.
type Live struct {
	Tiers       []Tier
	Unaccounted int64
	HeldBytes   int64
}

// Tier is one tier's limiter at a scrape.
type Tier struct {
	Name                                   string
	Limit, Used, UsedMax, Waiting, WaitMax int
}

type collector struct {
	live                                     func() Live
	limit, inflight, inflightMax, depth, max *prometheus.Desc
	unaccounted, held                        *prometheus.Desc
}

func newCollector(live func() Live) *collector {
	tier := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("brownout_"+name, help, []string{"tier"}, nil)
	}
	return &collector{
		live:        live,
		limit:       tier("limit", "Slots of the tier in this process."),
		inflight:    tier("inflight", "Slots held."),
		inflightMax: tier("inflight_max", "Most slots held at once since the start or the last reset."),
		depth:       tier("queue_depth", "Requests waiting."),
		max:         tier("queue_depth_max", "Most requests waiting at once since the start or the last reset."),
		unaccounted: prometheus.NewDesc("brownout_unaccounted", "Arrivals without an outcome that are not in flight: always 0, or there is a bug.", nil, nil),
		held:        prometheus.NewDesc("brownout_held_bytes", "Bytes of answers held back: unfinished events, and documents being collected.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.limit, c.inflight, c.inflightMax, c.depth, c.max, c.unaccounted, c.held} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	live := c.live()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, t := range live.Tiers {
		gauge(c.limit, float64(t.Limit), t.Name)
		gauge(c.inflight, float64(t.Used), t.Name)
		gauge(c.inflightMax, float64(t.UsedMax), t.Name)
		gauge(c.depth, float64(t.Waiting), t.Name)
		gauge(c.max, float64(t.WaitMax), t.Name)
	}
	gauge(c.unaccounted, float64(live.Unaccounted))
	gauge(c.held, float64(live.HeldBytes))
}
