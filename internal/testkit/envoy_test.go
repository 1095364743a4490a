package testkit

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// directEnvoy answers every request itself and logs two fields.
const directEnvoy = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters: [{name: r, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 418, body: {inline_string: short}}}]}
          access_log:
          - name: f
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: LOG
              log_format: {json_format: {status: "%RESPONSE_CODE%", path: "%REQ(:PATH)%", source: "%RESP(X-NONE)%"}}
`

func TestEnvoyIsStartedObservedAndRestarted(t *testing.T) {
	log := AccessLogPath(t)
	e := StartEnvoy(t, EnvoyConfig{Bootstrap: []byte(replaceOnce(t, directEnvoy, "LOG", log)), AccessLog: log})
	get := func() {
		t.Helper()
		resp, err := http.Get(e.URL("/a"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 418 || string(body) != "short" {
			t.Errorf("status %d, body %q, %v", resp.StatusCode, body, err)
		}
	}
	get()
	Eventually(t, 5*time.Second, func() bool { return e.Stats("http.front.downstream_rq_4xx") == 1 }, "the request is not counted")
	if n := e.Stats("http.front.no_such_counter"); n != 0 {
		t.Errorf("a counter that does not exist is %d", n)
	}
	if got := e.WaitAccessLog(1)[0]; got != (AccessEntry{Status: 418, Path: "/a"}) {
		t.Errorf("access log entry %+v", got)
	}
	e.Restart()
	get()
	if n := len(e.WaitAccessLog(2)); n != 2 {
		t.Errorf("%d access log entries, want 2", n)
	}
	e.Stop()
	if _, err := http.Get(e.URL("/a")); err == nil {
		t.Error("a stopped Envoy answers")
	}
}

func TestValidateEnvoyPassesOnWhatEnvoySays(t *testing.T) {
	if err := ValidateEnvoy(t, t.TempDir(), []byte("static_resources: {clusters: [{name: a, no_such_field: 1}]}")); err == nil {
		t.Error("an unknown field is accepted")
	}
	if err := ValidateEnvoy(t, t.TempDir(), []byte("static_resources: {}")); err != nil {
		t.Error(err)
	}
}

func replaceOnce(t *testing.T, s, old, with string) string {
	t.Helper()
	if strings.Count(s, old) != 1 {
		t.Fatalf("%q is not exactly once in the text", old)
	}
	return strings.Replace(s, old, with, 1)
}
