package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// askWait bounds one question to an admin page.
const askWait = 5 * time.Second

// get reads a page; any status but 200 is an error.
func get(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	t := &http.Transport{DisableKeepAlives: true} // and no proxy: everything is on this machine
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %d", address, resp.StatusCode)
	}
	return string(text), err
}

// envoyStat reads one of Envoy's counters; one it has not made yet is 0.
func (s *demoStack) envoyStat(ctx context.Context, name string) (int, error) {
	text, err := get(ctx, "http://"+s.envoyAdmin+"/stats?filter="+url.QueryEscape("^"+regexp.QuoteMeta(name)+"$"))
	if err != nil {
		return 0, err
	}
	_, value, ok := strings.Cut(strings.TrimSpace(text), ": ")
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(value)
}

// metrics reads brownout's counters.
func (s *demoStack) metrics(ctx context.Context) (demoMetrics, error) {
	text, err := get(ctx, "http://"+s.httpAddr+"/metrics")
	if err != nil {
		return nil, err
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	return p.TextToMetricFamilies(strings.NewReader(text))
}

// demoMetrics are metric families by name.
type demoMetrics map[string]*dto.MetricFamily

// by sums the samples of a counter or gauge by the value of one label; with label "" all of them under "".
func (m demoMetrics) by(name, label string) map[string]int {
	sums := map[string]int{}
	for _, sample := range m[name].GetMetric() {
		key := ""
		for _, l := range sample.GetLabel() {
			if l.GetName() == label {
				key = l.GetValue()
			}
		}
		sums[key] += int(sample.GetCounter().GetValue() + sample.GetGauge().GetValue())
	}
	return sums
}

func (m demoMetrics) sum(name string) int { return m.by(name, "")[""] }

// state reads /debug/state.
func (s *demoStack) state(ctx context.Context) (debugState, error) {
	var d debugState
	text, err := get(ctx, "http://"+s.adminAddr+"/debug/state")
	if err == nil {
		err = json.Unmarshal([]byte(text), &d)
	}
	return d, err
}

// waitTier waits until the tier full holds so many slots and so many wait for it.
func (s *demoStack) waitTier(ctx context.Context, running, waiting int) error {
	var last debugTier
	err := s.until(ctx, s.brownout, func() (bool, error) {
		d, err := s.state(ctx)
		if err != nil || len(d.Tiers) == 0 {
			return false, err
		}
		last = d.Tiers[0]
		return last.InFlight == running && last.Waiting == waiting, nil
	})
	if err != nil {
		return fmt.Errorf("tier full has %d running and %d waiting, want %d and %d: %w", last.InFlight, last.Waiting, running, waiting, err)
	}
	return nil
}

// logEntry is what the demo reads of a line of Envoy's access log.
type logEntry struct {
	Status   int    `json:"status"`
	Flags    string `json:"flags"`
	Details  string `json:"code_details"`
	Duration int    `json:"duration_ms"`
	Source   string `json:"source"`
	Route    string `json:"route"`
}

// String is how an entry is shown.
func (e logEntry) String() string {
	flags := ""
	if e.Flags != "" && e.Flags != "-" {
		flags = ", flags " + e.Flags
	}
	return fmt.Sprintf("%d%s, %s", e.Status, flags, e.Details)
}

// skipLog makes newEntries begin with what is logged from now on.
func (s *demoStack) skipLog() error {
	info, err := os.Stat(s.accessLog)
	if err != nil {
		return err
	}
	s.logAt = info.Size()
	return nil
}

// newEntries reads what was logged since skipLog, at least n entries of watched routes.
func (s *demoStack) newEntries(ctx context.Context, n int) ([]logEntry, error) {
	var list []logEntry
	err := s.until(ctx, s.envoy, func() (bool, error) {
		all, err := s.entries(s.logAt)
		list = list[:0]
		for _, e := range all {
			if e.Route != "unmatched" {
				list = append(list, e)
			}
		}
		return len(list) >= n, err
	})
	if err != nil {
		return nil, fmt.Errorf("access log of Envoy has %d new entries, want %d: %w", len(list), n, err)
	}
	return list, nil
}

// entries reads the access log from an offset on. Envoy may be writing the last line.
func (s *demoStack) entries(from int64) ([]logEntry, error) {
	text, err := os.ReadFile(s.accessLog)
	if err != nil {
		return nil, err
	}
	var list []logEntry
	for line := range bytes.Lines(text[min(from, int64(len(text))):]) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e logEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("access log of Envoy: %q: %w", line, err)
		}
		list = append(list, e)
	}
	return list, nil
}
