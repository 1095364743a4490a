package testkit

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds how long a process may take to become ready on a busy machine.
const startTimeout = 30 * time.Second

// dumpedLines is how much of a program's log a failed test shows.
const dumpedLines = 60

// lastLines cuts text down to its last n lines.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Process is a running program of a test. Its methods are for the test's goroutine.
type Process struct {
	t       testing.TB
	name    string
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when the program has ended and err is set
	err     error
}

// StartProcess runs a program whose output goes to a log file. The program is killed at the end of the test, if it
// still runs; its log is printed if the test failed.
func StartProcess(t testing.TB, bin string, args ...string) *Process {
	t.Helper()
	return startCommand(t, exec.Command(bin, args...))
}

// StartCommand is StartProcess for a command whose environment or folder the test has set. Its output must be unset.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return startCommand(t, cmd)
}

func startCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	name := filepath.Base(cmd.Path)
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	// A test binary that is killed takes its children with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &Process{t: t, name: name, cmd: cmd, logPath: log.Name(), done: make(chan struct{})}
	if err := startPinned(cmd); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of the log of %s %v:\n%s", name, cmd.Args[1:], lastLines(p.Log(), dumpedLines))
		}
	})
	return p
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Log is what the program has written so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		p.t.Fatalf("reading the log of %s: %v", p.name, err)
	}
	return string(b)
}

// Signal sends a signal; a program that has ended already is not an error.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("sending %v to %s: %v", s, p.name, err)
	}
}

// Kill ends the program at once and waits for it. It may be called more than once.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Wait waits for the program to end by itself and returns its exit code, -1 if a signal ended it. The test ends if
// that takes longer than d.
func (p *Process) Wait(d time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatalf("%s still runs after %v", p.name, d)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Running reports whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// WaitReady waits until a GET of url answers 200, and ends the test if the program ends first.
func (p *Process) WaitReady(url string) {
	p.t.Helper()
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	p.waitFor(url+" to answer 200", func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// WaitLog waits until the program has written a line that matches re and returns the submatches of the first one.
func (p *Process) WaitLog(re *regexp.Regexp) []string {
	p.t.Helper()
	var found []string
	p.waitFor("a log line matching "+re.String(), func() bool {
		found = re.FindStringSubmatch(p.Log())
		return found != nil
	})
	return found
}

func (p *Process) waitFor(what string, ok func() bool) {
	p.t.Helper()
	reached := poll(startTimeout, func() bool { return ok() || !p.Running() })
	if !reached {
		p.t.Fatalf("%s: waited %v for %s", p.name, startTimeout, what)
	}
	if !p.Running() && !ok() {
		p.t.Fatalf("%s ended (%v) before %s", p.name, p.err, what)
	}
}
