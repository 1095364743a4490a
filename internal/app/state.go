package app

import (
	"time"

	"github.com/envoy-brownout/brownout/extproc"
)

// debugState is what /debug/state shows.
type debugState struct {
	Version    string        `json:"version"`
	PolicyHash string        `json:"policy_hash"`
	Requests   extproc.Tally `json:"requests"`
	Tiers      []debugTier   `json:"tiers"`
	Rungs      []debugRung   `json:"rungs,omitempty"` // those with a wait_over
	Seal       *debugSeal    `json:"seal,omitempty"`
}

type debugRung struct {
	Route   string `json:"route"`
	Tier    string `json:"tier"`
	Low     bool   `json:"low"` // requests go there without waiting for the better tier
	Entries int    `json:"entries"`
}

type debugTier struct {
	Tier       string        `json:"tier"`
	InPolicy   bool          `json:"in_policy"`
	Limit      int           `json:"limit"`
	InFlight   int           `json:"in_flight"`
	MaxFlight  int           `json:"in_flight_max"`
	Queue      int           `json:"queue"`
	Waiting    int           `json:"waiting"`
	MaxWaiting int           `json:"waiting_max"`
	Next       []debugWaiter `json:"next"` // the first to run, at most 100

	// Medians over the latest requests that the tier served well, and over how many; 0 with none.
	ServiceMs      float64 `json:"service_ms"`
	ServiceSamples int     `json:"service_samples"`
	FirstMs        float64 `json:"first_content_ms"`
	FirstSamples   int     `json:"first_content_samples"`
}

type debugWaiter struct {
	Priority   int   `json:"priority"`
	WaitedMs   int64 `json:"waited_ms"`
	GivesUpMs  int64 `json:"gives_up_in_ms"`
	DeadlineMs int64 `json:"deadline_in_ms"`
}

func (s *server) state() debugState {
	d := s.proc.Dump(true)
	out := debugState{Version: version(), PolicyHash: d.PolicyHash, Requests: s.proc.Tally(), Tiers: []debugTier{}, Seal: s.sealState()}
	for _, r := range d.Rungs {
		out.Rungs = append(out.Rungs, debugRung{r.Route, r.Tier, r.Low, r.Entries})
	}
	for _, t := range d.Tiers {
		row := debugTier{Tier: t.Tier, InPolicy: t.InPolicy, Limit: t.Limit, InFlight: t.Used, MaxFlight: t.UsedMax,
			Queue: t.Queue, Waiting: t.Waiting, MaxWaiting: t.WaitingMax, Next: []debugWaiter{},
			ServiceMs: inMillis(t.Samples.Service), ServiceSamples: t.Samples.ServiceCount,
			FirstMs: inMillis(t.Samples.First), FirstSamples: t.Samples.FirstCount}
		for _, w := range t.Waiters {
			row.Next = append(row.Next, debugWaiter{w.Priority, w.Waited.Milliseconds(), w.GivesUp.Milliseconds(), w.Deadline.Milliseconds()})
		}
		out.Tiers = append(out.Tiers, row)
	}
	return out
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
