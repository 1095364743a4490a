package loadgen

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Expect is what a run must come to. The zero value expects nothing.
type Expect struct {
	Counts map[string]int // by the names of countNames; with any of them, other is expected to be 0 unless it is named
	P95    time.Duration  // ceiling of the 95th percentile over the admitted; 0 means none
	Max    time.Duration  // ceiling of the slowest admitted; 0 means none
}

// Check is one assertion and how it went.
type Check struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// String is the line printed for it.
func (c Check) String() string {
	if c.OK {
		return "ok  " + c.Text
	}
	return "FAIL " + c.Text
}

// countNames lists what can be expected, in the order it is checked.
func countNames() []string {
	return []string{"admitted", "shed", "other", "inflight_max", "queued_max", "started"}
}

// ParseCounts reads "admitted=12,shed=48". Empty text expects nothing.
func ParseCounts(text string) (map[string]int, error) {
	counts := map[string]int{}
	if text == "" {
		return counts, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if !slices.Contains(countNames(), name) {
			return nil, fmt.Errorf("expectation %q: name %q is unknown: use NAME=N with one of %s", part, name, strings.Join(countNames(), ", "))
		}
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("expectation %q: %q is not a whole number from 0", part, value)
		}
		if _, twice := counts[name]; twice {
			return nil, fmt.Errorf("expectation %q: %s is named twice", text, name)
		}
		counts[name] = int(n)
	}
	return counts, nil
}

// FormatCounts is the inverse of ParseCounts, in the order of the checks.
func FormatCounts(counts map[string]int) string {
	var parts []string
	for _, name := range countNames() {
		if n, ok := counts[name]; ok {
			parts = append(parts, name+"="+strconv.Itoa(n))
		}
	}
	return strings.Join(parts, ",")
}

// Checks compares the report with what was expected.
func (r Report) Checks(e Expect) []Check {
	var checks []Check
	want := maps.Clone(e.Counts)
	if _, named := want["other"]; len(want) > 0 && !named {
		want["other"] = 0
	}
	for _, name := range countNames() {
		n, asked := want[name]
		if !asked {
			continue
		}
		_, named := e.Counts[name]
		if c := r.checkCount(name, n); !c.OK || named && c.Text != "" {
			checks = append(checks, c)
		}
	}
	if e.P95 > 0 {
		checks = append(checks, r.checkTime("p95", r.P95, e.P95, "ceiling"))
	}
	if e.Max > 0 {
		checks = append(checks, r.checkTime("max", r.Max, e.Max, "budget"))
	}
	return checks
}

// checkCount has no text where the article prints none: an admitted count that holds is in the report's first line.
func (r Report) checkCount(name string, want int) Check {
	got := r.countOf(name)
	switch {
	case got == nil:
		return Check{Text: fmt.Sprintf("%s unknown, expected %d: give the address that knows it", name, want)}
	case *got != want:
		return Check{Text: fmt.Sprintf("%s %d, expected %d", name, *got, want)}
	case name == "admitted":
		return Check{OK: true}
	case name == "shed":
		return Check{OK: true, Text: fmt.Sprintf("%d shed as designed", want)}
	}
	return Check{OK: true, Text: fmt.Sprintf("%s %d as designed", name, want)}
}

func (r Report) countOf(name string) *int {
	switch name {
	case "admitted":
		return &r.Admitted
	case "shed":
		return &r.Shed
	case "other":
		return &r.Other
	case "inflight_max":
		return r.InflightMax
	case "queued_max":
		return r.QueuedMax
	case "started":
		return r.Started
	}
	return nil
}

func (r Report) checkTime(name string, got Millis, ceiling time.Duration, what string) Check {
	switch {
	case r.Admitted == 0:
		return Check{Text: fmt.Sprintf("%s unknown, nothing was admitted", name)}
	case time.Duration(got) > ceiling:
		return Check{Text: fmt.Sprintf("%s %s over %s %s", name, got, Millis(ceiling), what)}
	}
	return Check{OK: true, Text: fmt.Sprintf("%s %s under %s %s", name, got, Millis(ceiling), what)}
}
