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
	delayFrames  = 120
	delayEdge    = 10 // frames at either end that do not count
)

// delayWays are the ways of delayPolicy; plain matches no route of it.
var delayWays = []string{"plain", "unwatched", "unsealed", "sealed"}

// BenchmarkAddedDelayPerFrame measures what a frame costs on its way: the time from the upstream's write to the client's
// read (p50 and p99 over the frames of 20 streams out of step), and the CPU of brownout and of Envoy per frame. The ways
// take turns within one run, so that a busy machine is busy for all of them; each is to be read against plain. A virtual
// machine that stands still for some milliseconds now and then spoils a p99, so the quietest round's is reported too; the
// first and the last frames of a stream, where connections begin and end, are left out of both:
//
//	go test -run '^$' -bench AddedDelay -benchtime 10x ./e2e
func BenchmarkAddedDelayPerFrame(b *testing.B) {
	for _, gap := range []time.Duration{20 * time.Millisecond, 5 * time.Millisecond} {
		b.Run(fmt.Sprintf("%d_frames_a_second", delayStreams*int(time.Second/gap)), func(b *testing.B) {
			u := httptest.NewServer(stamped(gap))
			b.Cleanup(u.Close)
			s := startStack(b, stackOptions{policy: delayPolicy, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
			var taken [4]delayed
			for b.Loop() {
				for i, way := range delayWays {
					taken[i].run(b, s, way, gap)
				}
			}
			for i, way := range delayWays {
				taken[i].report(b, way)
			}
		})
	}
}

// delayed is what the frames of one way took.
type delayed struct {
	frames        []time.Duration
	quietest      time.Duration // the lowest p99 of a round
	plugin, proxy time.Duration
}

func (d *delayed) run(b *testing.B, s *stack, way string, gap time.Duration) {
	plugin, proxy := cpu(b, s.brownout.Pid()), cpu(b, s.envoy.Pid())
	round := delays(b, s.envoy.URL("/"+way), gap)
	d.frames = append(d.frames, round...)
	if p99 := percentile(round, 99); d.quietest == 0 || p99 < d.quietest {
		d.quietest = p99
	}
	d.plugin += cpu(b, s.brownout.Pid()) - plugin
	d.proxy += cpu(b, s.envoy.Pid()) - proxy
}

func (d *delayed) report(b *testing.B, way string) {
	n := len(d.frames) * delayFrames / (delayFrames - 2*delayEdge) // all frames cost CPU
	b.ReportMetric(millis(percentile(d.frames, 50)), way+"-p50-ms")
	b.ReportMetric(millis(percentile(d.frames, 99)), way+"-p99-ms")
	b.ReportMetric(millis(d.quietest), way+"-p99-quietest-ms")
	b.ReportMetric(d.plugin.Seconds()*1e6/float64(n), way+"-brownout-us/frame")
	b.ReportMetric(d.proxy.Seconds()*1e6/float64(n), way+"-envoy-us/frame")
}

func percentile(d []time.Duration, p int) time.Duration {
	slices.Sort(d)
	return d[len(d)*p/100]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// stamped streams frames that say when they were written.
func stamped(gap time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		tick := time.NewTicker(gap)
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
}

// delays runs the streams, each begun a part of a gap after the other, and returns the time each frame took.
func delays(b *testing.B, url string, gap time.Duration) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i := range delayStreams {
		time.Sleep(gap / delayStreams * time.Duration(1+i%3)) // out of step
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
				return
			}
			mu.Lock()
			all = append(all, mine[delayEdge:delayFrames-delayEdge]...)
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
