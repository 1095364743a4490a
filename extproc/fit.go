package extproc

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// staleFor is how long Envoy's configuration counts as out of date after the last sign of it. While Envoys are updated
// one by one, old and new speak in turn.
const staleFor = time.Minute

// maxFitSeen bounds what is remembered of the configurations Envoys have announced.
const maxFitSeen = 64

// fit judges whether the Envoys in front run a configuration that fits the policy.
type fit struct {
	mu       sync.Mutex // guards the fields below
	lastBad  time.Time
	stale    bool
	warned   map[string]bool            // complaints made, by what they were about
	routings map[string]map[string]bool // ROUTE/TIER pairs, by the announcement they were read from
}

// checkHash tells when the Envoy in front runs another configuration than the policy in force needs, and which routes
// that one has; nil: all of the policy's. Envoys that announce nothing are not judged.
func (s *Server) checkHash(now time.Time, a announced) map[string]bool {
	want := *s.wantHash.Load()
	good := a.hash == want || a.hash == ""
	first := s.judge(now, good, a.hash)
	if good {
		return nil
	}
	if first {
		s.log.Warn("Envoy runs a configuration that does not fit the policy: render it again with brownout envoy bootstrap",
			slog.String("announced", a.hash), slog.String("needed", want))
	}
	return s.fit.routing(a.routes)
}

// checkAttributes tells when Envoy does not say who wrote an answer.
func (s *Server) checkAttributes(now time.Time, told bool) {
	if s.judge(now, told, "attributes") {
		s.log.Warn("Envoy does not send response.code_details, so its own answers count as the upstream's: " +
			"set response_attributes as brownout envoy bootstrap does")
	}
}

// judge takes one sign of how well Envoy's configuration fits and moves the gauge; true for the first of its kind.
func (s *Server) judge(now time.Time, good bool, what string) (first bool) {
	f := &s.fit
	f.mu.Lock()
	if !good {
		f.lastBad = now
		first = f.remember(what)
	}
	stale := !f.lastBad.IsZero() && now.Sub(f.lastBad) < staleFor
	changed := stale != f.stale
	f.stale = stale
	f.mu.Unlock()
	if changed {
		s.obs.EnvoyStale(stale)
	}
	return first
}

// remember notes that something was complained about; true when it had not been, as far as is remembered. With f.mu.
func (f *fit) remember(what string) bool {
	if f.warned[what] {
		return false
	}
	if f.warned == nil || len(f.warned) >= maxFitSeen {
		f.warned = make(map[string]bool)
	}
	f.warned[what] = true
	return true
}

// routing reads an announcement of ROUTE/TIER pairs once. Nil when there is none.
func (f *fit) routing(announced string) map[string]bool {
	if announced == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.routings[announced]; ok {
		return r
	}
	if f.routings == nil || len(f.routings) >= maxFitSeen {
		f.routings = make(map[string]map[string]bool)
	}
	r := make(map[string]bool)
	for name := range strings.SplitSeq(announced, ",") {
		r[name] = true
	}
	f.routings[announced] = r
	return r
}
