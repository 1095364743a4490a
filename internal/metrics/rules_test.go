package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v4"
)

// rulesFile is the part of Prometheus' rule files that ours use.
type rulesFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) map[string]rule {
	t.Helper()
	src, err := os.ReadFile(rulesPath)
	if err != nil {
		t.Fatal(err)
	}
	var f rulesFile
	if err := yaml.Load(src, &f, yaml.WithKnownFields()); err != nil {
		t.Fatal(err)
	}
	got := map[string]rule{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			got[r.Alert] = r
		}
	}
	return got
}

// The three alerts of the requirements, shed ratio above 5 % for five minutes, queue wait p95 above 250 ms, degrade ratio
// above 20 %, and one for the store.
func TestTheAlertsAreTheOnesAskedFor(t *testing.T) {
	want := map[string]struct{ bound, lasting string }{
		"BrownoutShedRatioHigh":    {"> 0.05", "5m"},
		"BrownoutQueueWaitHigh":    {"> 0.25", ""},
		"BrownoutDegradeRatioHigh": {"> 0.20", ""},
		"BrownoutStoreFailing":     {"> 0.1", "5m"},
	}
	got := rules(t)
	if len(got) != len(want) {
		t.Errorf("%d rules, want %d", len(got), len(want))
	}
	for name, w := range want {
		r := got[name]
		if !strings.HasSuffix(strings.TrimSpace(r.Expr), w.bound) || r.For != w.lasting {
			t.Errorf("%s: fires for %q when\n%swant for %q and %s", name, r.For, r.Expr, w.lasting, w.bound)
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description: %+v", name, r)
		}
	}
}

var (
	selector = regexp.MustCompile(`(brownout_\w+)(?:\{([^}]*)\})?(?:\[(\w+)\])?`)
	matcher  = regexp.MustCompile(`^(\w+)(=|!=|=~|!~)"[^"]*"$`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
)

// There is no PromQL parser here; this is what an expression is most likely to get wrong: names, labels, brackets.
func TestTheAlertsSpeakOfMetricsAndLabelsThereAre(t *testing.T) {
	known := map[string][]string{}
	for _, f := range families(t) {
		known[f.GetName()] = labels(f)
		if f.GetType() == dto.MetricType_HISTOGRAM {
			known[f.GetName()+"_bucket"] = append(labels(f), "le")
		}
	}
	for name, r := range rules(t) {
		selectors := selector.FindAllStringSubmatch(r.Expr, -1)
		if len(selectors) == 0 {
			t.Errorf("%s speaks of no metric:\n%s", name, r.Expr)
		}
		for _, s := range selectors {
			checkSelector(t, name, known, s[1], s[2], s[3])
			for _, g := range grouping.FindAllStringSubmatch(r.Expr, -1) {
				for label := range strings.SplitSeq(g[1], ",") {
					if !slices.Contains(known[s[1]], strings.TrimSpace(label)) {
						t.Errorf("%s groups by %q, which %s does not have", name, label, s[1])
					}
				}
			}
		}
		if plain := quoted.ReplaceAllString(r.Expr, ""); !balanced(plain) {
			t.Errorf("%s: brackets do not match:\n%s", name, r.Expr)
		}
	}
}

func checkSelector(t *testing.T, alert string, known map[string][]string, metric, matchers, span string) {
	t.Helper()
	have, ok := known[metric]
	if !ok {
		t.Errorf("%s: there is no metric %s", alert, metric)
	}
	if _, err := time.ParseDuration(span); err != nil {
		t.Errorf("%s: %s has no range such as [5m]: counters mean nothing without rate", alert, metric)
	}
	if matchers == "" {
		return
	}
	for m := range strings.SplitSeq(matchers, ",") {
		parts := matcher.FindStringSubmatch(m)
		if parts == nil || !slices.Contains(have, parts[1]) {
			t.Errorf("%s: matcher %s does not fit %s, which has the labels %v", alert, m, metric, have)
		}
	}
}

func balanced(s string) bool {
	var open []rune
	closes := map[rune]rune{')': '(', ']': '[', '}': '{'}
	for _, c := range s {
		switch {
		case strings.ContainsRune("([{", c):
			open = append(open, c)
		case closes[c] != 0:
			if len(open) == 0 || open[len(open)-1] != closes[c] {
				return false
			}
			open = open[:len(open)-1]
		}
	}
	return len(open) == 0
}
