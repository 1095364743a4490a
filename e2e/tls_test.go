package e2e

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// The certificate of httptest is valid for 127.0.0.1 and example.com and signed by itself.
func TestAnHTTPSUpstreamIsVerifiedByAuthorityAndName(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
	}))
	upstream.EnableHTTP2 = true
	upstream.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what this is about
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	own := filepath.Join(t.TempDir(), "own.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	if err := os.WriteFile(own, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(testkit.RepoRoot(t), "envoy", "testdata", "ca.pem")
	for name, c := range map[string]struct {
		host, ca string
		want     int
		stat     string // what Envoy counts
	}{
		"the right name and authority": {"127.0.0.1", own, http.StatusOK, "handshake"},
		"a foreign authority":          {"127.0.0.1", foreign, http.StatusServiceUnavailable, "fail_verify_error"},
		"another name":                 {"localhost", own, http.StatusServiceUnavailable, "fail_verify_san"},
	} {
		t.Run(name, func(t *testing.T) {
			_, port := hostPort(t, upstream.URL)
			e := startAwayWith(t, c.ca, envoy.Upstream{Tier: "full", Scheme: envoy.SchemeHTTPS, Host: c.host, Port: port})
			status, body := post(t, newClient(t, false), e.URL("/v1/chat/completions"))
			if status != c.want {
				t.Errorf("status %d, want %d; body %q", status, c.want, body)
			}
			if e.Stats("cluster.tier_full.ssl."+c.stat) == 0 {
				t.Errorf("Envoy counts no %s: %v", c.stat, e.StatsMatching(`^cluster\.tier_full\.ssl\.`))
			}
		})
	}
}
