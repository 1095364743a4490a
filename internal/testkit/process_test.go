package testkit

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// spy stands in for a test, so that a helper's failure can be looked at. Fatalf unwinds to run.
type spy struct {
	testing.TB
	message string
}

func (s *spy) Helper() {}

func (s *spy) Fatalf(format string, args ...any) {
	s.message = fmt.Sprintf(format, args...)
	panic(s)
}

// run calls f and returns the message it ended with, or "".
func (s *spy) run(f func()) (message string) {
	defer func() {
		if r := recover(); r != nil && r != any(s) {
			panic(r)
		}
		message = s.message
	}()
	f()
	return ""
}

func TestEventuallyReturnsAsSoonAsTheConditionHolds(t *testing.T) {
	calls := 0
	Eventually(t, time.Minute, func() bool { calls++; return calls == 3 }, "never")
	if calls != 3 {
		t.Errorf("looked %d times", calls)
	}
}

func TestEventuallyEndsTheTestWithItsMessage(t *testing.T) {
	s := &spy{TB: t}
	got := s.run(func() { Eventually(s, time.Millisecond, func() bool { return false }, "the moon is still up") })
	if !strings.Contains(got, "the moon is still up") {
		t.Errorf("message %q", got)
	}
}

func TestAProcessIsReadSignalledAndWaitedFor(t *testing.T) {
	p := StartProcess(t, "/bin/sh", "-c", `echo listening on 127.0.0.1:4711; trap 'echo bye; exit 7' TERM; while :; do sleep 0.01; done`)
	if m := p.WaitLog(regexp.MustCompile(`listening on \S+:(\d+)`)); m[1] != "4711" {
		t.Errorf("submatches %q", m)
	}
	if !p.Running() {
		t.Error("not running")
	}
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(startTimeout); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if p.Running() || !strings.HasSuffix(p.Log(), "bye\n") {
		t.Errorf("running %v, log %q", p.Running(), p.Log())
	}
	p.Kill() // of a process that has ended: nothing to do
}

func TestAKilledProcessIsGoneWhenKillReturns(t *testing.T) {
	p := StartProcess(t, "/bin/sh", "-c", "exec sleep 60")
	p.Kill()
	if p.Running() || p.Wait(time.Second) != -1 {
		t.Errorf("running %v", p.Running())
	}
	if err := syscall.Kill(p.Pid(), 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v", p.Pid(), err)
	}
}

func TestWaitReadyWaitsForStatus200(t *testing.T) {
	var calls atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	StartProcess(t, "/bin/sh", "-c", "exec sleep 60").WaitReady(srv.URL)
	if n := calls.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

func TestWaitReadyDoesNotWaitForAProcessThatHasEnded(t *testing.T) {
	p := StartProcess(t, "/bin/sh", "-c", "exit 3")
	s := &spy{TB: t}
	p.t = s
	got := s.run(func() { p.WaitReady("http://" + FreeAddr(t) + "/readyz") })
	p.t = t
	if !strings.Contains(got, "sh ended (exit status 3) before") {
		t.Errorf("message %q", got)
	}
}

func TestFreeAddrCanBeListenedOn(t *testing.T) {
	l, err := net.Listen("tcp", FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestBuildBrownoutBuildsTheRealProgram(t *testing.T) {
	p := StartProcess(t, BuildBrownout(t), "--help")
	if code := p.Wait(startTimeout); code != 0 || !strings.Contains(p.Log(), "Usage: brownout") {
		t.Errorf("exit code %d, output %q", code, p.Log())
	}
	if again := BuildBrownout(t); again != p.cmd.Path {
		t.Errorf("built again as %s", again)
	}
}
