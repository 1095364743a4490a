package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

const (
	stormRequests = 100
	stormLasts    = 10 * time.Second // how long the upstream fails, and how long requests are begun
)

// stormPolicy has room for all; %s is the retry policy.
const stormPolicy = `version: 1
budget: {max: 10s}
tiers:
  full: {model: {concurrency: 1000, queue: 0}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
  stream: {seal: %t}
  %s
`

// stormRow is what one way of retrying made of a storm.
type stormRow struct {
	name           string
	calls, retries int
	ok, failed     int
	perRequest     float64
}

// TestSDKRetryStorm: an upstream that resets every request before its headers for ten seconds, and stock SDKs with their
// default retries. Ours must help where it is cheap and stay within its budget where everything fails; on a status it
// adds nothing.
func TestSDKRetryStorm(t *testing.T) {
	python := getSDK(t, "python")
	for _, fails := range []string{"reset", "503"} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			rows := make([]stormRow, 4)
			t.Run("ways", func(t *testing.T) {
				for i, way := range []struct {
					name, retry string
					seal        bool
				}{
					{"off", "", true}, {"on", "retry: {retries: 1, budget: 100}", true}, {"on, with the budget", "retry: {retries: 1}", true},
					{"the same, not sealed", "retry: {retries: 1}", false},
				} {
					t.Run(way.name, func(t *testing.T) {
						t.Parallel()
						rows[i] = storm(t, python, fails, way.name, fmt.Sprintf(stormPolicy, way.seal, way.retry))
					})
				}
			})
			t.Logf("upstream %s for %s, %d requests by openai-python with its default retries", fails, stormLasts, stormRequests)
			for _, r := range rows {
				t.Logf("ours %-20s %3d upstream calls, %.2f per request, of them %d retries of ours; %d answered, %d failed", r.name, r.calls, r.perRequest, r.retries, r.ok, r.failed)
			}
			checkStorm(t, fails, rows)
		})
	}
}

// checkStorm: off means none, a status is never repeated, and a budget of 20 percent is not passed by more than the three
// that always may, once per five seconds and for those under way.
func checkStorm(t *testing.T, fails string, rows []stormRow) {
	if rows[0].retries != 0 {
		t.Errorf("switched off: %d retries", rows[0].retries)
	}
	for _, r := range rows[1:] {
		if fails == "503" && r.retries != 0 {
			t.Errorf("%s: %d retries after a status", r.name, r.retries)
		}
	}
	if fails == "503" {
		return
	}
	if rows[1].retries == 0 {
		t.Error("none was repeated")
	}
	for _, r := range rows[2:] {
		if first := r.calls - r.retries; r.retries == 0 || r.retries > first/5+4*3 {
			t.Errorf("%s: %d retries beside %d calls, want some, and within the budget", r.name, r.retries, first)
		}
	}
}

func storm(t *testing.T, python, fails, name, policy string) stormRow {
	var calls atomic.Int64
	begun := time.Now()
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case time.Since(begun) > stormLasts:
			w.Header().Set("content-type", "application/json")
			_, _ = io.WriteString(w, wholeChat)
		case fails == "503":
			http.Error(w, `{"error":{"message":"busy"}}`, http.StatusServiceUnavailable)
		default:
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset, not an end
			_ = c.Close()
		}
	}))
	t.Cleanup(u.Close)
	s := startStack(t, stackOptions{policy: policy, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
	begun = time.Now()
	out, err := exec.Command(python, filepath.Join(testkit.RepoRoot(t), "e2e", "sdk", "python", "storm.py"), strings.TrimSuffix(s.envoy.URL("/"), "/"),
		fmt.Sprint(stormRequests), fmt.Sprint(stormLasts.Seconds())).Output()
	if err != nil {
		t.Fatalf("storm.py: %v", err)
	}
	var answered struct{ OK, Failed int }
	if err := json.Unmarshal(out, &answered); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	n := int(calls.Load())
	return stormRow{name: name, calls: n, retries: s.metric("brownout_retries_total"), ok: answered.OK, failed: answered.Failed, perRequest: float64(n) / stormRequests}
}
