package app

import (
	"github.com/envoy-brownout/brownout/extproc"
	"github.com/envoy-brownout/brownout/internal/metrics"
)

// observer hands what the processor sees to the metrics; neither room knows the other.
type observer struct{ *metrics.Metrics }

// Finished converts a record: the two types are the same fields, and stay so or this does not compile.
func (o observer) Finished(r extproc.Record) { o.Metrics.Finished(metrics.Request(r)) }
