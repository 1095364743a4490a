package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// delayPolicy has one route for each way a body can take.
const delayPolicy = `version: 1
tiers:
  full: {model: {concurrency: 100, queue: 0}}
routes:
- {name: unwatched, match: {path: {prefix: /unwatched}}, ladder: [full], stream: false}
- {name: unsealed, match: {path: {prefix: /unsealed}}, ladder: [full], stream: {seal: false}}
- {name: sealed, match: {path: {prefix: /sealed}}, ladder: [full]}
`

const (
	delayStreams = 20
	delayFrames  = 200
	delayGap     = 5 * time.Millisecond
)

// BenchmarkAddedDelayPerFrame measures what a frame costs on its way: the time from the upstream's write to the client's
// read (p50 and p99 over 4,000 frames of 20 streams), and the CPU of brownout and of Envoy per frame. plain is a request
// that no route matches; the others are to be read against it, in one run:
//
//	go test -run '^$' -bench AddedDelay -benchtime 3x ./e2e
func BenchmarkAddedDelayPerFrame(b *testing.B) {
	u := httptest.NewServer(http.HandlerFunc(stamped))
	b.Cleanup(u.Close)
	s := startStack(b, stackOptions{policy: delayPolicy, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
	for _, way := range []string{"plain", "unwatched", "unsealed", "sealed"} {
		b.Run(way, func(b *testing.B) {
			var all []time.Duration
			plugin, proxy := cpu(b, s.brownout.Pid()), cpu(b, s.envoy.Pid())
			for b.Loop() {
				all = append(all, delays(b, s.envoy.URL("/"+way))...)
			}
			slices.Sort(all)
			n := float64(len(all))
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric((cpu(b, s.brownout.Pid())-plugin).Seconds()*1e6/n, "brownout-us/frame")
			b.ReportMetric((cpu(b, s.envoy.Pid())-proxy).Seconds()*1e6/n, "envoy-us/frame")
		})
	}
}

// stamped streams frames that say when they were written.
func stamped(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("content-type", "text/event-stream")
	tick := time.NewTicker(delayGap)
	defer tick.Stop()
	for range delayFrames {
		<-tick.C
		fmt.Fprintf(w, "data: {\"at\":%d,\"pad\":%q}\n\n", time.Now().UnixNano(), strings.Repeat("x", 140))
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// delays runs the streams and returns the time each frame took.
func delays(b *testing.B, url string) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for range delayStreams {
		wg.Go(func() {
			resp, err := http.Get(url)
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			var mine []time.Duration
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				rest, ok := strings.CutPrefix(lines.Text(), `data: {"at":`)
				if !ok {
					continue
				}
				at, err := strconv.ParseInt(rest[:strings.IndexByte(rest, ',')], 10, 64)
				if err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(time.Unix(0, at)))
			}
			if len(mine) != delayFrames {
				b.Errorf("%d frames, want %d: %v", len(mine), delayFrames, lines.Err())
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	return all
}

// cpu is the processor time a process has used (proc(5): utime and stime, in hundredths of a second).
func cpu(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		b.Fatalf("stat of %d: %v %v", pid, err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
