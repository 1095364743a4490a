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
	counted, arrivals := m.classes(), m.sum("brownout_arrivals_total")
	log, err := d.loggedClasses(ctx, arrivals)
	if err != nil {
		return err
	}
	d.words("Every request of this demo, as brownout counted it and as Envoy's access log shows it by status and source. The log cannot look into " +
		"an answer, brownout can:")
	d.line("")
	d.line("    %-16s %9s %9s   %s", "", "brownout", "Envoy", "brownout's outcomes")
	agree, ended := true, 0
	for _, name := range slices.Sorted(maps.Keys(union(counted, log))) {
		c := counted[name]
		lines := inLines(c.outcomes, outcomesPerLine)
		d.line("    %-16s %9d %9d   %s", name, c.n, log[name].n, lines[0])
		for _, more := range lines[1:] {
			d.line("    %-16s %9s %9s   %s", "", "", "", more)
		}
		agree = agree && c.n == log[name].n
		ended += c.n
	}
	d.line("")
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

// outcomesPerLine keeps the table of the books as narrow as the rest of the page.
const outcomesPerLine = 4

// inLines joins words, at most n to a line; there is always one.
func inLines(words []string, n int) []string {
	var lines []string
	for chunk := range slices.Chunk(words, n) {
		lines = append(lines, strings.Join(chunk, ", "))
	}
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}

// bookClass is what can be told of requests from outside, and brownout's outcomes in it.
type bookClass struct {
	n        int
	outcomes []string
}

// classes sorts brownout's counters. Of a stream that was ended in its middle the log shows the status that was out by
// then, so it stands with what was answered; brownout_terminal_frames_total has how many there are. So does an error of the
// upstream that another answer stood in for.
func (m demoMetrics) classes() map[string]bookClass {
	byOutcome, ended := m.by("brownout_requests_total", "outcome"), m.by("brownout_terminal_frames_total", "reason")
	stoodIn := m.by("brownout_degraded_total", "reason")["upstream_throttled"] // of the outcome throttled, answered by a text
	list := map[string]bookClass{}
	add := func(class, outcome string, n int) {
		if n > 0 {
			c := list[class]
			list[class] = bookClass{c.n + n, append(c.outcomes, fmt.Sprintf("%s %d", outcome, n))}
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(byOutcome)) {
		n := byOutcome[outcome]
		switch outcome {
		case "ok", "degraded", "replayed", "capped", "refusal", "empty", "truncated":
			add("answered", outcome, n)
		case "deadline":
			add("answered", outcome, ended["deadline"])
			add(outcome, outcome, n-ended["deadline"])
		case "throttled":
			add("answered", outcome, stoodIn)
			add(outcome, outcome, n-stoodIn)
		case "overloaded", "evicted":
			add("upstream's 503", outcome, n)
		default:
			add(outcome, outcome, n)
		}
	}
	return list
}

// loggedClasses waits until n requests are in Envoy's access log and sorts them in the same way.
func (d *demo) loggedClasses(ctx context.Context, n int) (map[string]bookClass, error) {
	var list []logEntry
	err := d.stack.until(ctx, d.stack.envoy, func() (ok bool, err error) {
		list, err = d.stack.entries(0)
		return len(list) >= n, err
	})
	if err != nil {
		return nil, fmt.Errorf("access log of Envoy has %d entries, brownout counted %d arrivals: %w", len(list), n, err)
	}
	counts := map[string]bookClass{}
	for _, e := range list {
		counts[e.class()] = bookClass{n: counts[e.class()].n + 1}
	}
	return counts, nil
}

// class is what an entry of the access log shows of how a request ended.
func (e logEntry) class() string {
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
		return "answered"
	case e.Status == 429:
		return "throttled"
	case e.Status == 503 && e.Source == "upstream":
		return "upstream's 503"
	case e.Status >= 500:
		return "upstream_error"
	}
	return "bad_request"
}

func union(a, b map[string]bookClass) map[string]bookClass {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
