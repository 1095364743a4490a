package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// storeSecret is the secret of the HMAC in tests; redisPassword that of the server.
const (
	storeSecret   = "0f8b2ac46c9c4d1d8c9b7f0d5f3a61e7-secret"
	redisPassword = "redis-pass-7d1f"
)

// storeKind is a store under test: what the policy says of it.
type storeKind struct {
	name   string
	policy func(t *testing.T) string
}

// storeKinds are both stores; each test of one has a server of its own.
func storeKinds() []storeKind {
	return []storeKind{
		{"memory", func(*testing.T) string { return "store: {memory: {max: 64MiB}}\n" }},
		{"redis", func(t *testing.T) string {
			return redisPolicy(t, testkit.StartRedis(t, testkit.RedisOptions{Password: redisPassword}).Addr)
		}},
	}
}

// redisPolicy is the store of a policy: a Redis at addr, with the tests' secret and password.
func redisPolicy(t *testing.T, addr string) string {
	t.Helper()
	dir := t.TempDir()
	secret, password := filepath.Join(dir, "secret"), filepath.Join(dir, "password")
	for path, text := range map[string]string{secret: storeSecret, password: redisPassword} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("store: {redis: {address: %q, password_file: %q}, secret_file: %q}\n", addr, password, secret)
}

// gate is a way to a server that a test can close: what is sent through it is then lost, and nobody is told.
type gate struct {
	addr   string
	closed atomic.Bool
}

// startGate listens in front of the server at to.
func startGate(t *testing.T, to string) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { g.carry(from, to) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait() // brownout is gone by now, and its connections with it
	})
	return g
}

// carry joins a connection to the server until either side ends.
func (g *gate) carry(from net.Conn, to string) {
	defer from.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(from, server)
		_ = from.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		if g.closed.Load() {
			continue
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = server.Close()
	<-done
}

// restart kills brownout, starts it again and waits until Envoy asks it again.
func (s *stack) restart(c *http.Client) {
	s.t.Helper()
	s.brownout.Kill()
	s.startBrownout()
	testkit.Eventually(s.t, 10*time.Second, func() bool {
		return s.send(s.t.Context(), c, chatPath, "x-budget-ms", "0").status == http.StatusServiceUnavailable
	}, "Envoy does not ask the restarted brownout")
}

// postAs posts a body to a path for a caller who may leave; a header may repeat.
func (s *stack) postAs(ctx context.Context, c *http.Client, path, body string, headers ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.envoy.URL(path), strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("content-type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	return do(c, req)
}

// total is how often a scripted upstream was asked.
func (u *scripted) total() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return total(u.calls)
}
