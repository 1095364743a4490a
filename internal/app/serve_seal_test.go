package app

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// innerServer stands for Envoy's inner listener: it says which request reached it.
func innerServer(t *testing.T, l net.Listener) {
	t.Helper()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "inner "+r.URL.Path) // the test sees what is missing
	})}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// sealClient speaks to the seal as Envoy does.
func sealClient(t *testing.T, network, addr string) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func askSeal(t *testing.T, c *http.Client, path string) (status int, mark, body string) {
	t.Helper()
	resp, err := c.Get("http://model.test" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, resp.Header.Get("x-brownout-seal"), string(text)
}

func TestServeSealsBetweenItsSocketAndEnvoys(t *testing.T) {
	dir := shortDir(t)
	sock, inner := filepath.Join(dir, "seal"), filepath.Join(dir, "inner")
	s := startServe(t, narrow, "--seal", "unix:"+sock, "--inner", "unix:"+inner)
	checkMode(t, sock, fs.ModeSocket|0o600)
	c := sealClient(t, "unix", sock)
	if status, mark, body := askSeal(t, c, "/early"); status != 503 || mark != "unreachable" {
		t.Errorf("before Envoy listens: status %d, mark %q, body %q", status, mark, body)
	}
	l, err := net.Listen("unix", inner)
	if err != nil {
		t.Fatal(err)
	}
	innerServer(t, l)
	if status, mark, body := askSeal(t, c, "/v1/x"); status != 200 || mark != "" || body != "inner /v1/x" {
		t.Errorf("status %d, mark %q, body %q", status, mark, body)
	}
	state := s.state()
	if state.Seal == nil {
		t.Fatalf("state without a seal: %+v", state)
	}
	if state.Seal.Ended["unreachable"] != 1 || state.Seal.Ended["whole"] != 1 || state.Seal.Connections != 1 {
		t.Errorf("%+v", state.Seal)
	}
}

func TestServeSealsOverLoopbackToo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	innerServer(t, l)
	s := startServe(t, narrow, "--seal", "127.0.0.1:0", "--inner", l.Addr().String())
	line, _ := s.log.find("serving")
	addr, _ := line["seal"].(string)
	if status, _, body := askSeal(t, sealClient(t, "tcp", addr), "/tcp"); status != 200 || body != "inner /tcp" {
		t.Errorf("status %d, body %q", status, body)
	}
}

func TestServeRefusesASealOthersCouldReach(t *testing.T) {
	dir := shortDir(t)
	for name, c := range map[string]struct{ seal, inner, want string }{
		"all addresses":       {":9000", "unix:/i", "--seal :9000: other machines could reach it (want unix:PATH or 127.0.0.1:PORT)"},
		"a name":              {"localhost:9000", "unix:/i", "--seal localhost:9000: other machines could reach it"},
		"no address":          {"here", "unix:/i", "--seal here: want unix:PATH or 127.0.0.1:PORT"},
		"inner elsewhere":     {"unix:" + dir + "/seal", "10.0.0.1:1", "--inner 10.0.0.1:1: other machines could reach it"},
		"inner not absolute":  {"unix:" + dir + "/seal", "unix:i", "--inner unix:i: want an absolute path"},
		"seal is not a place": {"unix:seal", "unix:/i", "--seal unix:seal: want an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			code, errs := failServe(t, "--policy", policyFile(t, narrow), "--listen", "unix:"+filepath.Join(shortDir(t), "s"), "--seal", c.seal, "--inner", c.inner)
			if code != ExitUsage || !strings.Contains(errs, c.want) {
				t.Errorf("exit %d, stderr %q, want %q", code, errs, c.want)
			}
		})
	}
}
