package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// readersPolicy leaves the end of a stream to the caller's budget: nobody falls silent for long enough.
const readersPolicy = `version: 1
tiers:
  full: {model: {concurrency: 64, queue: 0}}
routes:
- name: all
  match: {path: {prefix: /}}
  ladder: [full]
  stream: {seal: %t, idle: 30s}
`

const (
	stoppedReaders, slowReaders = 5, 5
	badReadersInAll             = stoppedReaders + slowReaders
	readersBudget               = 4 * time.Second
	flushTimeout                = 5 * time.Second // stream_flush_timeout of the generated configuration
)

// readerCost is the most memory in MiB that a stopped reader of a flood may cost brownout and Envoy. Unsealed, with an
// upstream of HTTP/1.1, Envoy reads far ahead before it learns that nobody takes what it has read.
var readerCost = map[bool][2]int{true: {14, 5}, false: {60, 36}}

// TestReadersThatStopOrAreSlow: callers that do not read, or read slowly, hold up nobody else's stream and no memory
// beyond a bound; at the deadline, although its frame cannot be delivered, the slot is free and the outcome counted; and
// the upstream stops working after that: over the seal at once, without it after Envoy's stream_flush_timeout.
func TestReadersThatStopOrAreSlow(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		for _, w := range wires {
			t.Run(fmt.Sprintf("%s sealed=%t", w.name, sealed), func(t *testing.T) {
				t.Parallel() // most of the time is spent waiting
				u := startScripted(t)
				s := startStack(t, stackOptions{policy: fmt.Sprintf(readersPolicy, sealed), scheme: w.upstream, upstreamAddr: address(u)})
				badReaders(t, &caseEnv{wire: w, s: s, u: u, c: newClient(t, w.h2)}, sealed)
			})
		}
	}
}

func badReaders(t *testing.T, e *caseEnv, sealed bool) {
	chunk := "data: " + strings.Repeat("x", 64<<10) + "\n\n"
	endless := make([]string, 5000) // 320 MB: no buffer on the way holds it
	for i := range endless {
		endless[i] = chunk
	}
	e.u.add("endless", script{chunks: endless})
	steady := append(slices100(partial), "data: [DONE]\n\n")
	e.u.add("steady", script{chunks: steady, gap: 5 * time.Millisecond})
	alone := e.s.send(t.Context(), e.c, genericPath, "x-script", "steady")
	e.s.waitInflight("full", 0, 0)
	plugin, proxy := rss(t, e.s.brownout.Pid()), rss(t, e.s.envoy.Pid())

	hurry, ended := context.WithCancel(t.Context())
	var slow sync.WaitGroup
	defer slow.Wait()
	defer ended()
	for i := range badReadersInAll {
		own := &caseEnv{wire: e.wire, s: e.s, u: e.u, c: newClient(t, e.h2)} // a connection of its own
		own.c.Timeout = time.Minute
		resp := own.openAt(t, genericPath, "x-script", "endless", "x-budget-ms", fmt.Sprint(readersBudget.Milliseconds()))
		if resp == nil {
			return
		}
		defer resp.Body.Close()
		if i >= stoppedReaders {
			slow.Go(func() { readSlowly(hurry, t, resp) })
		}
	}
	opened := time.Now()
	var beside answer
	for range 3 { // while the buffers fill, a small machine has no time for anybody
		beside = e.s.send(t.Context(), e.c, genericPath, "x-script", "steady")
		if beside.took <= alone.took+500*time.Millisecond || time.Since(opened) > readersBudget/2 {
			break
		}
	}
	if beside.status != 200 || beside.err != nil || beside.body != strings.Join(steady, "") || beside.took > alone.took+time.Second {
		t.Errorf("alone a stream took %s, beside them: %v", alone.took, beside)
	}
	morePlugin, moreProxy := (rss(t, e.s.brownout.Pid())-plugin)>>20, (rss(t, e.s.envoy.Pid())-proxy)>>20
	at := waitDeadlines(t, e, opened)
	testkit.Eventually(t, 2*flushTimeout, func() bool { return e.u.count(e.u.cancelled, "endless") == badReadersInAll }, "an upstream works on")
	e.u.mu.Lock()
	after := e.u.left["endless"].Sub(at)
	e.u.mu.Unlock()
	t.Logf("the last upstream was cancelled %s after our ends; %d readers cost brownout %d MiB, Envoy %d MiB; a stream took %s alone, %s beside them",
		after.Round(time.Millisecond), badReadersInAll, morePlugin, moreProxy, alone.took.Round(time.Millisecond), beside.took.Round(time.Millisecond))
	bound := flushTimeout + time.Second
	if sealed {
		bound = 500 * time.Millisecond
	}
	if after > bound {
		t.Errorf("the last upstream worked on for %s after our ends, want at most %s", after, bound)
	}
	if most := readerCost[sealed]; morePlugin > badReadersInAll*most[0] || moreProxy > badReadersInAll*most[1] {
		t.Errorf("%d readers cost brownout %d MiB and Envoy %d MiB, want at most %d and %d MiB each", badReadersInAll, morePlugin, moreProxy, most[0], most[1])
	}
}

// waitDeadlines waits until every bad reader's stream has been ended at its deadline, and checks that they hold nothing.
func waitDeadlines(t *testing.T, e *caseEnv, opened time.Time) (at time.Time) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() bool {
		at = time.Now()
		return e.s.metric("brownout_terminal_frames_total", "reason", "deadline") == badReadersInAll
	}, "not every stream was ended at its deadline")
	if late := at.Sub(opened) - readersBudget; late > 500*time.Millisecond {
		t.Errorf("the deadlines were counted %s late", late)
	}
	if n := e.s.metric("brownout_inflight"); n != 0 {
		t.Errorf("%d slots are still held", n)
	}
	return at
}

// readSlowly reads 800 KB a second until told to hurry, and then as fast as it can. At its end is our frame, or the stream breaks because the frame came too late: a
// clean end without it would be a lie.
func readSlowly(hurry context.Context, t *testing.T, resp *http.Response) {
	last, buf := "", make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(buf)
		last += string(buf[:n])
		last = last[max(0, len(last)-200):]
		if err == io.EOF && !strings.HasSuffix(last, seedFrame("deadline")) {
			t.Errorf("a slow reader's stream ends cleanly in %q", last)
		}
		if err != nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-hurry.Done():
		}
	}
}

// rss is the resident memory of a process in bytes.
func rss(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
