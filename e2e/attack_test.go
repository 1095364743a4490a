package e2e

import (
	"bytes"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// TestNoSpellingOfAPathGoesAroundAdmission: servers undo what these spellings hide, so they must match the route.
func TestNoSpellingOfAPathGoesAroundAdmission(t *testing.T) {
	onEveryWire(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		for _, path := range []string{"/v1%2Fchat/completions", "/v1/chat%2fcompletions", "/v1//chat/completions", "/x/../v1/chat/completions",
			"/v1/%2e%2e/v1/chat/completions", "/v1/%63hat/completions", "/v1\\chat/completions", "/v1/chat%5Ccompletions"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.envoy.URL("/"), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.URL.Opaque = path // as it is, uncleaned
			before := s.metric("brownout_arrivals_total", "route", "chat")
			a := do(c, req)
			rationed := a.err == nil && a.header.Get("x-brownout-source") == "upstream" && s.metric("brownout_arrivals_total", "route", "chat") == before+1
			if !rationed {
				t.Errorf("%s: %v, want it rationed", path, a)
			}
		}
		if n := s.metric("brownout_requests_total", "outcome", "unmatched"); n != 0 {
			t.Errorf("%d requests went around admission", n)
		}
	})
}

// TestOneAdmissionIsOneCall: a caller of a trusted network cannot make Envoy's router retry under one slot.
func TestOneAdmissionIsOneCall(t *testing.T) {
	s := startStack(t, stackOptions{internal: []string{"127.0.0.0/8"}})
	a := s.send(t.Context(), newClient(t, false), chatPath, "x-stub-mode", "error", "x-envoy-retry-on", "5xx", "x-envoy-max-retries", "20",
		"x-envoy-upstream-rq-timeout-ms", "1", "x-envoy-hedge-on-per-try-timeout", "true")
	if a.status != 500 || s.stub.Stats().Started != 1 {
		t.Errorf("%v after %d calls, want the upstream's 500 after one", a, s.stub.Stats().Started)
	}
	s.checkBooks()
}

// TestAHungBrownoutFailsAsThePolicySays: it holds its sockets and answers nothing.
func TestAHungBrownoutFailsAsThePolicySays(t *testing.T) {
	s := startStack(t, stackOptions{policy: openAndClosed})
	c := newClient(t, false)
	s.send(t.Context(), c, chatPath)
	s.brownout.Signal(syscall.SIGSTOP)
	if a := s.send(t.Context(), c, strictPath); a.status != 503 {
		t.Errorf("fail closed: %v, want 503", a)
	}
	if a := s.send(t.Context(), c, chatPath); a.status != 200 {
		t.Errorf("fail open: %v, want the upstream's answer", a)
	}
	s.brownout.Signal(syscall.SIGCONT)
}

// TestAQuietConnectionIsKept: Envoy pings it, and grpc-go must not take that for abuse. Envoy's interval is shortened.
func TestAQuietConnectionIsKept(t *testing.T) {
	s := startStack(t, stackOptions{policy: oneSlot, edit: func(config []byte) []byte {
		shorter := bytes.Replace(config, []byte("interval: 10s"), []byte("interval: 1.5s"), 1)
		if bytes.Equal(shorter, config) {
			t.Fatal("no interval to shorten in Envoy's configuration")
		}
		return shorter
	}})
	c := newClient(t, false)
	stream := s.background(c, chatPath, "x-stub-mode", "stream", "x-stub-chunks", "2", "x-stub-gap", "9s")
	s.waitInflight("full", 1, 0)
	next := s.background(c, chatPath, "x-budget-ms", "10000")
	if a := <-stream; a.status != 200 || a.err != nil || !bytes.HasSuffix([]byte(a.body), []byte("data: [DONE]\n\n")) {
		t.Errorf("the quiet stream: %v", a)
	}
	if a := <-next; a.header.Get("x-brownout-source") == "" {
		t.Errorf("the waiting request: %v, want it admitted or shed by brownout", a)
	}
	if n := s.stub.Stats().InflightMax; n != 1 {
		t.Errorf("%d requests at the upstream at once, want 1", n)
	}
	s.checkBooks()
}

// TestWhileDrainingLateArrivalsAreServed: the process is no longer ready, but Envoy may not know yet.
func TestWhileDrainingLateArrivalsAreServed(t *testing.T) {
	s := startStack(t, stackOptions{policy: oneSlot, stub: stub.Config{Latency: latency(t, "700ms")}, serve: []string{"--grace", "8s"}})
	c := newClient(t, false)
	first := s.background(c, chatPath)
	s.waitInflight("full", 1, 0)
	s.brownout.Signal(syscall.SIGTERM)
	testkit.Eventually(t, 5*time.Second, func() bool {
		resp, err := http.Get(s.httpURL + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	}, "still ready after SIGTERM")
	late := s.background(newClient(t, true), chatPath)
	for what, ch := range map[string]<-chan answer{"running": first, "late": late} {
		if a := <-ch; a.status != 200 || a.header.Get("x-brownout-source") != "upstream" {
			t.Errorf("%s: %v, want it served", what, a)
		}
	}
	if n := s.stub.Stats().InflightMax; n != 1 {
		t.Errorf("%d requests at the upstream at once, want 1", n)
	}
	if code := s.brownout.Wait(5 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestAnUpgradeIsRefusedWhereNoneIsOfUse: it goes around ext_proc, so a route that only takes POST allows none.
func TestAnUpgradeIsRefusedWhereNoneIsOfUse(t *testing.T) {
	s := startStack(t, stackOptions{})
	a := s.send(t.Context(), newClient(t, false), chatPath, "connection", "upgrade", "upgrade", "websocket")
	if a.err == nil && a.status < 400 {
		t.Errorf("got %v, want a refusal", a)
	}
	if n := s.stub.Stats().Arrived; n != 0 {
		t.Errorf("%d requests reached the upstream", n)
	}
}
