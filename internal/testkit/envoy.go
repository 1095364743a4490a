package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Envoy is a running Envoy with one listener.
type Envoy struct {
	Addr     string // HOST:PORT of the listener
	AdminURL string // http://HOST:PORT of the admin listener

	t      testing.TB
	config string
	log    string // path of the access log
	proc   *Process
}

// AccessLogPath returns where an Envoy of this test should write its access log: pass it to the renderer, and
// StartEnvoy is given the same path.
func AccessLogPath(t testing.TB) string { return filepath.Join(t.TempDir(), "access.log") }

// EnvoyConfig is what StartEnvoy starts.
type EnvoyConfig struct {
	Bootstrap []byte // YAML; give the listener and the admin listener port 0
	AccessLog string // path the bootstrap names for the access log; empty: AccessLog is not used
}

// StartEnvoy starts a real Envoy and waits until it serves.
func StartEnvoy(t testing.TB, c EnvoyConfig) *Envoy {
	t.Helper()
	e := &Envoy{t: t, log: c.AccessLog, config: filepath.Join(t.TempDir(), "envoy.yaml")}
	if err := os.WriteFile(e.config, c.Bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	e.start()
	return e
}

// start runs Envoy with two worker threads, so that what crosses threads is tested too.
func (e *Envoy) start() {
	e.t.Helper()
	adminFile := filepath.Join(e.t.TempDir(), "admin")
	e.proc = StartProcess(e.t, EnvoyPath(e.t),
		"--config-path", e.config, "--use-dynamic-base-id", "--admin-address-path", adminFile,
		"--concurrency", "2", "--log-level", "warning", "--drain-time-s", "1", "--parent-shutdown-time-s", "2",
		"--file-flush-interval-msec", "20")
	e.proc.waitFor("the admin address", func() bool {
		b, err := os.ReadFile(adminFile)
		e.AdminURL = "http://" + string(b)
		return err == nil && len(b) > 0
	})
	e.proc.WaitReady(e.AdminURL + "/ready")
	e.proc.waitFor("the listener", func() bool {
		e.Addr = listenerAddr(e.admin("/listeners?format=json"))
		return e.Addr != ""
	})
}

// listenerAddr reads the first listener's real address from the admin interface's answer, or "".
func listenerAddr(answer []byte) string {
	var l struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if json.Unmarshal(answer, &l) != nil || len(l.Statuses) == 0 || l.Statuses[0].Local.Socket.Port == 0 {
		return ""
	}
	s := l.Statuses[0].Local.Socket
	return fmt.Sprintf("%s:%d", s.Address, s.Port)
}

// URL is http://Addr followed by path.
func (e *Envoy) URL(path string) string { return "http://" + e.Addr + path }

// Stop ends Envoy at once.
func (e *Envoy) Stop() { e.proc.Kill() }

// Restart ends Envoy and starts it again with the same configuration. Addr and AdminURL change when their ports
// were 0.
func (e *Envoy) Restart() {
	e.t.Helper()
	e.Stop()
	e.start()
}

// Stats returns the value of one counter or gauge by its full name, for example
// "http.front.ext_proc.streams_started"; one that Envoy has not created yet is 0.
func (e *Envoy) Stats(name string) int {
	e.t.Helper()
	return e.StatsMatching("^" + strings.ReplaceAll(name, ".", `\.`) + "$")[name]
}

// StatsMatching returns the counters and gauges whose name matches a regular expression.
func (e *Envoy) StatsMatching(expr string) map[string]int {
	e.t.Helper()
	out := make(map[string]int)
	for line := range strings.Lines(string(e.admin("/stats?filter=" + url.QueryEscape(expr)))) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(value); err == nil {
			out[name] = n
		}
	}
	return out
}

func (e *Envoy) admin(path string) []byte {
	e.t.Helper()
	resp, err := http.Get(e.AdminURL + path)
	if err != nil {
		e.t.Fatalf("asking Envoy for %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		e.t.Fatalf("asking Envoy for %s: status %d, %v", path, resp.StatusCode, err)
	}
	return b
}

// AccessEntry is one line of the access log as the generated configuration writes it. Empty strings are fields
// Envoy had no value for.
type AccessEntry struct {
	Method          string `json:"method"`
	Path            string `json:"path"`
	Protocol        string `json:"protocol"`
	Status          int    `json:"status"`
	Flags           string `json:"flags"`
	CodeDetails     string `json:"code_details"`
	DurationMS      int    `json:"duration_ms"`
	Source          string `json:"source"`
	Tier            string `json:"tier"`
	Degraded        string `json:"degraded"`
	Route           string `json:"route"`
	UpstreamCluster string `json:"upstream_cluster"`
	BytesReceived   int    `json:"bytes_received"`
	BytesSent       int    `json:"bytes_sent"`
	RequestID       string `json:"request_id"`
}

// AccessLog returns the entries written so far. Envoy writes an entry when the exchange has ended, up to 20 ms
// later; WaitAccessLog waits for a number of them.
func (e *Envoy) AccessLog() []AccessEntry {
	e.t.Helper()
	b, err := os.ReadFile(e.log)
	if err != nil {
		e.t.Fatalf("reading Envoy's access log: %v", err)
	}
	var list []AccessEntry
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var entry AccessEntry
		if err := json.Unmarshal(line, &entry); err != nil {
			e.t.Fatalf("access log line %q: %v", line, err)
		}
		list = append(list, entry)
	}
	return list
}

// WaitAccessLog waits until the log has at least n entries and returns all of them.
func (e *Envoy) WaitAccessLog(n int) []AccessEntry {
	e.t.Helper()
	var list []AccessEntry
	Eventually(e.t, 10*time.Second, func() bool {
		list = e.AccessLog()
		return len(list) >= n
	}, fmt.Sprintf("access log has fewer than %d entries", n))
	return list
}

// ValidateEnvoy runs `envoy --mode validate` on a configuration, in folder dir for the relative paths it names.
func ValidateEnvoy(t testing.TB, dir string, bootstrap []byte) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(EnvoyPath(t), "--mode", "validate", "--config-path", file, "--log-level", "warning")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("envoy --mode validate: %w\n%s", err, out)
	}
	return nil
}

// Pid is Envoy's process id.
func (e *Envoy) Pid() int { return e.proc.Pid() }
