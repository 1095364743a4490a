package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/policy"
)

// Bounds on asking a running brownout.
const (
	adminTimeout = 5 * time.Second
	maxState     = 16 << 20 // bytes of /debug/state
	maxOccupied  = 1 << 20  // slots or waiting requests of one tier
)

// adminURL reads --admin; nil: it is not given.
func adminURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--admin %q: not a URL (write one such as http://127.0.0.1:9465)", hideQuery(text))
	}
	return u, nil
}

// readState asks a running brownout for its state.
func readState(ctx context.Context, base *url.URL) (debugState, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	var d debugState
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("debug/state").String(), nil)
	if err != nil {
		return d, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil { // without the URL again
			err = inner
		}
		return d, fmt.Errorf("%w (is it the --admin address of a running brownout serve?)", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return d, fmt.Errorf("/debug/state answers %d (is it the --admin address, and not --http?)", resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxState)).Decode(&d); err != nil {
		return d, fmt.Errorf("/debug/state is not what this version reads: %w", err)
	}
	for _, t := range d.Tiers {
		if t.InFlight < 0 || t.InFlight > maxOccupied || t.Waiting < 0 || t.Waiting > maxOccupied || t.Limit < 1 || t.Queue < 0 {
			return d, fmt.Errorf("/debug/state has impossible figures for tier %q", t.Tier)
		}
	}
	return d, nil
}

// engineState is a running process's state as the engine takes it. Under another policy the bounds are those of the file,
// and only how busy the tiers are is the process's.
func engineState(s *policy.Snapshot, d debugState) engine.State {
	out := engine.State{PolicyHash: d.PolicyHash}
	for _, r := range d.Rungs {
		out.Rungs = append(out.Rungs, engine.RungState{Route: r.Route, Tier: r.Tier, Low: r.Low, Entries: r.Entries})
	}
	for _, t := range d.Tiers {
		row := engine.TierState{Tier: t.Tier, InPolicy: t.InPolicy, Stats: limit.Stats{Limit: t.Limit, Queue: t.Queue, Used: t.InFlight, Waiting: t.Waiting},
			Samples: limit.Samples{Service: millis(t.ServiceMs), ServiceCount: min(t.ServiceSamples, maxSamples),
				First: millis(t.FirstMs), FirstCount: min(t.FirstSamples, maxSamples)}}
		for _, w := range t.Next {
			row.Waiters = append(row.Waiters, limit.Waiter{Priority: w.Priority, Waited: millis(float64(w.WaitedMs)),
				GivesUp: millis(float64(w.GivesUpMs)), Deadline: millis(float64(w.DeadlineMs))})
		}
		for _, of := range s.Tiers {
			if of.Name == t.Tier && of.Model != nil && d.PolicyHash != s.Hash {
				row.Limit, row.Queue = of.Model.Concurrency, of.Model.Queue
			}
		}
		out.Tiers = append(out.Tiers, row)
	}
	return out
}

// maxSamples is as many as a limiter looks at, with room.
const maxSamples = 1000

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// words joins names as people do.
func words(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + last + " " + names[len(names)-1]
}
