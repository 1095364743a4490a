package engine

import (
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// Names of the headers a caller or an Envoy in front states its wishes in; budget and priority are policy.
const (
	headerDegrade      = "x-degrade"
	headerMaxQueue     = "x-max-queue-ms"
	headerRemaining    = "x-deadline-remaining-ms"
	headerCovers       = "x-deadline-covers"
	headerGRPCTimeout  = "grpc-timeout"
	headerEnvoyTimeout = "x-envoy-expected-rq-timeout-ms"
	headerInternal     = "x-envoy-internal"
)

// degradeNever is the value of x-degrade that accepts the first tier only.
const degradeNever = "never"

// Request is what the headers of a request say. Header names are lower case; a repeated header is repeated here.
type Request struct {
	Method, Host, Path string
	Headers            []outcome.Header
	// MaxWait bounds the time in queues, as Envoy announced it; 0: unbounded.
	MaxWait time.Duration
	// Routes are the ROUTE/TIER pairs Envoy's configuration can send a request to; nil: all of the policy's.
	Routes map[string]bool
	// RouteTimeout is the timeout of Envoy's route, as announced; 0: none.
	RouteTimeout time.Duration
	Dialect      dialect.ID // that the path tells
	More         bool       // a body follows
	Length       int64      // of the body, as announced; 0: not
}

// wishes are the headers of a request, read.
type wishes struct {
	bounds   deadline.Bounds
	priority int
	class    string
	degrade  string // a tier name, "never", or ""
	maxQueue time.Duration
	hasQueue bool
	ignored  []string  // names of headers whose value was no use
	useless  []useless // …alike
}

// useless is the value of a header line that is of no use, and why.
type useless struct{ value, why string }

// ignoreIf notes a header line that held a value of no use, unless why is empty; one line counts once, however long its
// list.
func (w *wishes) ignoreIf(why string, h outcome.Header) {
	if why != "" {
		w.ignored, w.useless = append(w.ignored, h.Name), append(w.useless, useless{h.Value, why})
	}
}

// Why a value is of no use.
const (
	whyNoMillis    = "not a whole number of milliseconds"
	whyNoTimeout   = "not a gRPC timeout, such as 2500m"
	whyNegative    = "below zero"
	whyNoPriority  = "not a value of the policy's priority.map"
	whyUntrusted   = "priority.trust is internal, and the request is not marked x-envoy-internal: true"
	whyNoTier      = "neither never nor a tier of the route's ladder"
	whyOtherBefore = "another value came before it"
)

// readWishes reads every header once. Unknown values are ignored and noted; they never fail a request.
func readWishes(r *Request, rt *policy.Route, s *policy.Snapshot) wishes {
	w := wishes{priority: s.Priority.Default, class: ClassDefault}
	internal, coversFirst := false, false
	for _, h := range r.Headers {
		switch h.Name {
		case headerInternal:
			internal = h.Value == "true"
		case headerCovers:
			coversFirst = h.Value == "first_content"
		}
	}
	trusted := s.Priority.Trust == policy.TrustAll || internal
	for _, h := range r.Headers {
		switch h.Name {
		case rt.Budget.Header:
			w.addBounds(h, deadline.ParseMillis, w.bounds.AddWhole)
		case headerRemaining:
			if coversFirst {
				w.addBounds(h, deadline.ParseMillis, w.bounds.AddFirst)
			} else {
				w.addBounds(h, deadline.ParseMillis, w.bounds.AddWhole)
			}
		case headerGRPCTimeout:
			w.addBounds(h, deadline.ParseGRPCTimeout, w.bounds.AddWhole)
		case headerEnvoyTimeout:
			w.addBounds(h, deadline.ParseMillis, w.bounds.AddEnvoy)
		case s.Priority.Header:
			w.readPriority(h, s, trusted)
		case headerDegrade:
			w.readDegrade(h, rt, s)
		case headerMaxQueue:
			w.readMaxQueue(h)
		}
	}
	w.bounds.AddEnvoy(r.RouteTimeout)
	return w
}

func (w *wishes) addBounds(h outcome.Header, parse func(string) (time.Duration, bool), add func(time.Duration)) {
	why := ""
	for v := range valuesOf(h.Value) {
		if d, ok := parse(v); ok {
			add(d)
		} else if why = whyNoMillis; h.Name == headerGRPCTimeout {
			why = whyNoTimeout
		}
	}
	w.ignoreIf(why, h)
}

// readPriority takes the highest of several known values.
func (w *wishes) readPriority(h outcome.Header, s *policy.Snapshot, trusted bool) {
	why := ""
	for v := range valuesOf(h.Value) {
		p, ok := s.Priority.Values[v]
		switch {
		case !ok:
			why = whyNoPriority
		case !trusted:
			why = whyUntrusted
		case w.class == ClassDefault || p > w.priority:
			w.priority, w.class = p, v
		}
	}
	w.ignoreIf(why, h)
}

func (w *wishes) readDegrade(h outcome.Header, rt *policy.Route, s *policy.Snapshot) {
	why := ""
	for v := range valuesOf(h.Value) {
		known := v == degradeNever
		for _, rung := range rt.Ladder {
			known = known || s.Tiers[rung.Tier].Name == v
		}
		switch {
		case !known:
			why = whyNoTier
		case w.degrade != "" && w.degrade != v:
			why = whyOtherBefore
		default:
			w.degrade = v
		}
	}
	w.ignoreIf(why, h)
}

func (w *wishes) readMaxQueue(h outcome.Header) {
	why := ""
	for v := range valuesOf(h.Value) {
		switch d, ok := deadline.ParseMillis(v); {
		case !ok:
			why = whyNoMillis
		case d < 0:
			why = whyNegative
		case !w.hasQueue || d < w.maxQueue:
			w.maxQueue, w.hasQueue = d, true
		}
	}
	w.ignoreIf(why, h)
}

func valuesOf(s string) func(func(string) bool) {
	return func(yield func(string) bool) { deadline.Values(s, yield) }
}

// limits are the deadline limits of a route.
func limits(b policy.Budget) deadline.Limits {
	return deadline.Limits{Default: b.Default, Max: b.Max, CoversWhole: b.DefaultCovers == policy.CoversWhole}
}
