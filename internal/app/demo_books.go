package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// books is the fourth part: what arrived has ended, once, and everybody who counts agrees.
func (d *demo) books(ctx context.Context) error {
	d.heading("4. The books")
	if err := d.stack.waitTier(ctx, 0, 0); err != nil {
		return err
	}
	m, err := d.stack.metrics(ctx)
	if err != nil {
		return err
	}
	outcomes := m.by("brownout_requests_total", "outcome")
	arrivals, ended := m.sum("brownout_arrivals_total"), m.sum("brownout_requests_total")
	log, err := d.loggedOutcomes(ctx, arrivals)
	if err != nil {
		return err
	}
	d.words("Every request of this demo, as brownout counted it and as Envoy's access log shows it by status and source:")
	d.line("")
	d.line("    %-16s %9s %9s", "outcome", "brownout", "Envoy")
	agree := true
	for _, name := range sortedUnion(outcomes, log) {
		d.line("    %-16s %9d %9d", name, outcomes[name], log[name])
		agree = agree && outcomes[name] == log[name]
	}
	d.line("    %-16s %9d %9d\n", "all", ended, total(log))
	d.expect(agree, "brownout's counters and Envoy's access log agree")
	d.expect(arrivals == ended, fmt.Sprintf("arrivals %d, outcomes %d", arrivals, ended))
	unaccounted := m.sum("brownout_unaccounted")
	d.expect(unaccounted == 0, fmt.Sprintf("unaccounted %d", unaccounted))
	slots, waiting := m.sum("brownout_inflight"), m.sum("brownout_queue_depth")
	d.expect(slots == 0 && waiting == 0, fmt.Sprintf("slots held %d, requests waiting %d, work left at the model %d",
		slots, waiting, d.stack.stub.Stats().Inflight))
	stale := m.sum("brownout_envoy_stale")
	d.expect(stale == 0, fmt.Sprintf("brownout_envoy_stale %d: Envoy's configuration fits the policy", stale))
	return nil
}

// loggedOutcomes waits until n requests are in Envoy's access log and counts them by the outcome they show. A cut
// answer and an empty one look like ok, as they do to brownout in this version.
func (d *demo) loggedOutcomes(ctx context.Context, n int) (map[string]int, error) {
	var list []logEntry
	err := d.stack.until(ctx, d.stack.envoy, func() (ok bool, err error) {
		list, err = d.stack.entries(0)
		return len(list) >= n, err
	})
	if err != nil {
		return nil, fmt.Errorf("access log of Envoy has %d entries, brownout counted %d arrivals: %w", len(list), n, err)
	}
	counts := map[string]int{}
	for _, e := range list {
		counts[e.outcome()]++
	}
	return counts, nil
}

// outcome is what an entry of the access log shows of how a request ended.
func (e logEntry) outcome() string {
	switch {
	case e.Route == "unmatched":
		return "unmatched"
	case e.Source == "" && (e.Status == 0 || strings.HasPrefix(e.Flags, "D")): // DC, DR: the client closed or reset
		return "client_aborted"
	case e.Source == "":
		return "unhandled"
	case e.Source == "shed" || e.Source == "deadline":
		return e.Source
	case e.Status < 400:
		return "ok"
	case e.Status == 429:
		return "throttled"
	case e.Status == 503 && e.Source == "upstream":
		return "overloaded"
	case e.Status >= 500:
		return "upstream_error"
	}
	return "bad_request"
}

func sortedUnion(a, b map[string]int) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func total(counts map[string]int) int {
	n := 0
	for _, v := range counts {
		n += v
	}
	return n
}
