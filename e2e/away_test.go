package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/testkit"
	"github.com/envoy-brownout/brownout/policy"
)

// These tests run Envoy with nothing behind the ext_proc cluster: what the configuration promises by itself.

const awayPolicy = `version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
- name: strict
  match: {path: {prefix: /v1/strict}}
  ladder: [full]
  failure: closed
`

// startAway starts Envoy in front of an upstream, with brownout away.
func startAway(t *testing.T, upstream *httptest.Server, scheme envoy.Scheme) *testkit.Envoy {
	t.Helper()
	host, port := hostPort(t, upstream.URL)
	return startAwayWith(t, "", envoy.Upstream{Tier: "full", Scheme: scheme, Host: host, Port: port})
}

// startAwayWith is startAway for any upstream; ca verifies an https one.
func startAwayWith(t *testing.T, ca string, upstream envoy.Upstream) *testkit.Envoy {
	t.Helper()
	s, problems := policy.Parse("away.yaml", []byte(awayPolicy))
	if s == nil {
		t.Fatal(problems)
	}
	log := testkit.AccessLogPath(t)
	config, err := envoy.Bootstrap(s, envoy.Options{
		Listen:     "127.0.0.1:0",
		Admin:      "127.0.0.1:0",
		Processor:  "unix:" + filepath.Join(t.TempDir(), "nobody.sock"),
		AccessLog:  log,
		UpstreamCA: ca,
		Upstreams:  []envoy.Upstream{upstream},
	})
	if err != nil {
		t.Fatal(err)
	}
	return testkit.StartEnvoy(t, testkit.EnvoyConfig{Bootstrap: config, AccessLog: log})
}

func hostPort(t testing.TB, rawURL string) (string, uint16) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), uint16(port)
}

// startUpstream starts a server that speaks HTTP/1.1 and, in clear, HTTP/2. It answers with what it received.
func startUpstream(t *testing.T) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s\n", r.Proto, r.Method, r.URL.Path)
		r.Header.Write(w)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// plantedHeaders are names of ours that a caller sends along; none may reach the upstream.
var plantedHeaders = []string{"X-Tier", "X-Degraded", "X-Degraded-Reason", "X-Brownout-Seal", "X-Brownout-Id", "X-Brownout-Source", "X-Brownout-Foo"}

// post sends a request with every planted header and returns status and body.
func post(t *testing.T, client *http.Client, target string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range plantedHeaders {
		req.Header.Set(name, "planted")
	}
	req.Header.Set("X-Kept", "yes")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// newClient speaks HTTP/1.1 or, in clear with prior knowledge, HTTP/2.
func newClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func TestWithBrownoutAwayRequestsAreServedAndPlantedHeadersAreRemoved(t *testing.T) {
	for name, scheme := range map[string]envoy.Scheme{"HTTP/1.1": envoy.SchemeHTTP, "HTTP/2.0": envoy.SchemeH2C} {
		t.Run("upstream "+name, func(t *testing.T) {
			e := startAway(t, startUpstream(t), scheme)
			for _, http2 := range []bool{false, true} {
				for _, path := range []string{"/v1/chat/completions", "/elsewhere"} {
					status, body := post(t, newClient(t, http2), e.URL(path))
					if status != http.StatusOK || !strings.HasPrefix(body, name+" POST "+path+"\n") || !strings.Contains(body, "X-Kept: yes") {
						t.Errorf("%s, HTTP/2 %v: status %d, body:\n%s", path, http2, status, body)
					}
					if strings.Contains(body, "planted") {
						t.Errorf("%s, HTTP/2 %v: the upstream received a planted header:\n%s", path, http2, body)
					}
				}
			}
			if n := e.Stats("http.front.ext_proc.streams_started"); n != 4 {
				t.Errorf("ext_proc was asked %d times, want 4: unmatched requests pass it too", n)
			}
		})
	}
}

func TestWithBrownoutAwayEachRouteFailsAsItsPolicySays(t *testing.T) {
	e := startAway(t, startUpstream(t), envoy.SchemeHTTP)
	client := newClient(t, false)
	if status, _ := post(t, client, e.URL("/v1/strict")); status != http.StatusServiceUnavailable {
		t.Errorf("fail-closed route: status %d, want 503", status)
	}
	if status, _ := post(t, client, e.URL("/v1//chat/completions?key=secret")); status != http.StatusOK {
		t.Errorf("fail-open route: status %d, want 200", status)
	}
	log := e.WaitAccessLog(2)
	if len(log) != 2 {
		t.Fatalf("%d access log entries, want 2: %+v", len(log), log)
	}
	closed, open := log[0], log[1]
	if closed.Status != 503 || closed.Route != "strict" || closed.Source != "" || !strings.Contains(closed.CodeDetails, "ext_proc") {
		t.Errorf("entry of the fail-closed route: %+v", closed)
	}
	if open.Status != 200 || open.Route != "chat" || open.UpstreamCluster != "tier_full" || open.CodeDetails != "via_upstream" ||
		open.Path != "/v1/chat/completions" || open.BytesSent == 0 || open.BytesReceived != 2 {
		t.Errorf("entry of the fail-open route: %+v", open)
	}
}

func TestAWebsocketUpgradePassesAroundTheProcessor(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(echoUpgrade))
	t.Cleanup(upstream.Close)
	e := startAway(t, upstream, envoy.SchemeHTTP)
	for _, path := range []string{"/v1/strict", "/elsewhere"} {
		if status, tier, echo := upgradeH1(t, e.Addr, path); status != "101" || tier != "" || echo != "echo ping\n" {
			t.Errorf("%s: status %s, the upstream saw x-tier %q, echo %q", path, status, tier, echo)
		}
	}
	if n := e.Stats("http.front.ext_proc.streams_started"); n != 0 {
		t.Errorf("ext_proc was asked %d times about an upgrade", n)
	}
}

// echoUpgrade switches protocols and answers one line with itself.
func echoUpgrade(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Received-Tier: %s\r\n\r\n", r.Header.Get("X-Tier"))
	if buf.Flush() != nil {
		return
	}
	line, err := buf.ReadString('\n')
	if err != nil {
		return
	}
	fmt.Fprintf(buf, "echo %s", line)
	buf.Flush()
}
