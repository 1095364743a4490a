package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// startDemo runs the built binary's demo with a temporary folder of its own.
func startDemo(t *testing.T, path string, flags ...string) (p *testkit.Process, tmp string) {
	t.Helper()
	// Not t.TempDir: a Unix socket's path has 107 bytes at most.
	tmp, err := os.MkdirTemp("", "demo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	cmd := exec.Command(testkit.BuildBrownout(t), append([]string{"demo", "--envoy", testkit.EnvoyPath(t)}, flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	if path != "" {
		cmd.Env = append(cmd.Env, "PATH="+path)
	}
	return testkit.StartCommand(t, cmd), tmp
}

// checkGone checks that nothing of a demo is left: no file and no process that was started with a path in its folder.
func checkGone(t *testing.T, tmp string) {
	t.Helper()
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
	if cmds := running(t, tmp); len(cmds) > 0 {
		t.Errorf("still running: %q", cmds)
	}
}

// running lists the command lines of processes that mention text.
func running(t *testing.T, text string) (cmds []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes to look at: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), text) { // an error: it has ended meanwhile
			cmds = append(cmds, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return cmds
}

// keptLine is what --keep prints of the listener.
var keptLine = regexp.MustCompile(`Envoy listener +http://(\S+)`)

// demoLines are what every run prints.
var demoLines = []string{
	`admitted=12 shed=48 reasons={"queue_full":48}`,
	"inflight_max=4 queued_max=8",
	"ok  48 shed as designed",
	"ok  Envoy opened 60 streams to brownout",
	`{"error":"rate_limit_exceeded"}`,
	"HTTP/1.1 504 Gateway Timeout",
	`    "code":"deadline_expired"},"reason":"deadline_expired"}`,
	`    "code":"queue_full"},"reason":"queue_full"}`,
	`    data: {"delta":"partial "}

    event: done
    data: {"tier":"full","degraded":true,"reason":"upstream_truncated","complete":false}
`,
	`"degraded":true,"reason":"deadline","complete":false}

    data: [DONE]
`,
	"(exit code 18)",
	"fixed x3         ",
	"ok  brownout's counters and Envoy's access log agree",
	"ok  unaccounted 0",
	"ok  slots held 0, requests waiting 0, work left at the model 0",
	"stopped: Envoy, brownout (exit code 0), the stub",
}

func TestTheDemoShowsWhatItShouldAndCleansUp(t *testing.T) {
	p, tmp := startDemo(t, "")
	if code := p.Wait(2 * time.Minute); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.Log())
	}
	out := p.Log()
	for _, line := range demoLines {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in the output", line)
		}
	}
	if n := strings.Count(out, demoLines[0]); n < 2 {
		t.Errorf("%d bursts of 12 and 48, want one with HTTP/1.1 and one with HTTP/2", n)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours in a file")
	}
	for line := range strings.Lines(out) {
		if len(line) > 101 {
			t.Errorf("a line of %d bytes: %q", len(line)-1, line)
		}
	}
	checkGone(t, tmp)
}

// TestTheDemoWithoutCurl: python3 is the one client a machine with the prerequisites has.
func TestTheDemoWithoutCurl(t *testing.T) {
	python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(strings.TrimSpace(string(python)), filepath.Join(dir, "python3")); err != nil {
		t.Fatal(err)
	}
	p, tmp := startDemo(t, dir)
	if code := p.Wait(2 * time.Minute); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.Log())
	}
	for _, line := range append(demoLines, "$ python3 post.py $ENVOY/v1/chat/completions 'x-stub-mode: truncate'") {
		if !strings.Contains(p.Log(), line) {
			t.Errorf("no %q in the output", line)
		}
	}
	checkGone(t, tmp)
}

func TestADemoThatIsInterruptedCleansUp(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		after  string
	}{
		"SIGINT during the failure modes": {syscall.SIGINT, "2.3  error"},
		"SIGTERM during the start":        {syscall.SIGTERM, "starting a stub"},
	} {
		t.Run(name, func(t *testing.T) {
			p, tmp := startDemo(t, "")
			testkit.Eventually(t, time.Minute, func() bool { return strings.Contains(p.Log(), c.after) }, "the demo never came to "+c.after)
			p.Signal(c.signal)
			if code := p.Wait(30 * time.Second); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if !strings.Contains(p.Log(), "interrupted") {
				t.Errorf("it does not say that it was interrupted:\n%s", p.Log())
			}
			checkGone(t, tmp)
		})
	}
}

// TestADemoThatIsKeptRunsUntilInterrupted: it prints where everything is and answers there.
func TestADemoThatIsKeptRunsUntilInterrupted(t *testing.T) {
	p, tmp := startDemo(t, "", "--keep")
	m := p.WaitLog(keptLine)
	p.WaitReady("http://" + m[1] + "/stub/stats") // an unmatched path: Envoy passes it on to the stub
	if n := len(running(t, tmp)); n != 2 {
		t.Errorf("%d processes of the demo, want Envoy and brownout: %q", n, running(t, tmp))
	}
	p.Signal(syscall.SIGINT)
	if code := p.Wait(30 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0: Ctrl-C is how it ends\n%s", code, p.Log())
	}
	checkGone(t, tmp)
}

// TestADemoThatIsKilledTakesItsChildrenWithIt: the folder stays, no process does.
func TestADemoThatIsKilledTakesItsChildrenWithIt(t *testing.T) {
	p, tmp := startDemo(t, "", "--keep")
	p.WaitLog(keptLine)
	p.Kill()
	testkit.Eventually(t, 10*time.Second, func() bool { return len(running(t, tmp)) == 0 }, "children outlive a demo that was killed")
}
