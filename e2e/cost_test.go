package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// costPolicy has a route for each way a request is decided; %s is the store.
const costPolicy = `version: 1
tiers:
  full: {model: {concurrency: 100, queue: 0}}
routes:
- {name: headers, match: {path: {prefix: /headers}}, ladder: [full]}
- {name: body, match: {path: {prefix: /body}}, ladder: [full], idempotency: {ttl: 1m}}
- {name: cache, match: {path: {prefix: /cache}}, ladder: [full], cache: {ttl: 1h}}
%s`

const (
	costCallers  = 2
	costRequests = 400  // of a way in a round
	costPrompt   = 1500 // bytes: some 400 tokens
)

// costWays are the ways of costPolicy. headers is decided by its headers alone; body is read and has no key; keyed has one
// of its own; miss and hit are looked up. plain matches no route of it.
var costWays = []costWay{
	{name: "plain", path: "/plain"}, {name: "headers", path: "/headers"}, {name: "body", path: "/body"},
	{name: "keyed", path: "/body", keyed: true, differs: true}, {name: "miss", path: "/cache", differs: true}, {name: "hit", path: "/cache"},
}

type costWay struct {
	name, path     string
	keyed, differs bool // it has an idempotency key; each asks something else
}

// BenchmarkReplayCost measures what a body and a replay cost against a route that is decided by its headers, in the same
// run and in turns: p50 and p99 of whole small answers of an upstream that answers at once, and the CPU of brownout and of
// Envoy per request. An upstream of the real kind takes far longer; a hit is spared it:
//
//	go test -run '^$' -bench ReplayCost -benchtime 10x ./e2e
func BenchmarkReplayCost(b *testing.B) {
	stores := []struct {
		name   string
		policy func(b *testing.B) string
	}{
		{"memory", func(*testing.B) string { return "" }},
		{"redis", func(b *testing.B) string {
			return redisPolicy(b, testkit.StartRedis(b, testkit.RedisOptions{Password: redisPassword}).Addr)
		}},
	}
	for _, store := range stores {
		b.Run(store.name, func(b *testing.B) {
			u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("content-type", "application/json")
				_, _ = io.WriteString(w, wholeChat)
			}))
			b.Cleanup(u.Close)
			s := startStack(b, stackOptions{policy: fmt.Sprintf(costPolicy, store.policy(b)), upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
			taken := make([]costs, len(costWays))
			for i, way := range costWays {
				taken[i].way = way
			}
			for b.Loop() {
				for i := range taken {
					taken[i].run(b, s)
				}
			}
			for i := range taken {
				taken[i].report(b)
			}
		})
	}
}

// costs are what the requests of one way took.
type costs struct {
	way           costWay
	took          []time.Duration
	quietest      time.Duration // the lowest p99 of a round
	plugin, proxy time.Duration
	asked         atomic.Int64
}

func (d *costs) run(b *testing.B, s *stack) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: costCallers}}
	defer c.CloseIdleConnections()
	d.ask(b, s, c, costCallers) // connections, and what is hit
	plugin, proxy := cpu(b, s.brownout.Pid()), cpu(b, s.envoy.Pid())
	round := d.ask(b, s, c, costRequests)
	d.plugin += cpu(b, s.brownout.Pid()) - plugin
	d.proxy += cpu(b, s.envoy.Pid()) - proxy
	d.took = append(d.took, round...)
	if p99 := percentile(round, 99); d.quietest == 0 || p99 < d.quietest {
		d.quietest = p99
	}
}

// ask sends n requests, some at a time.
func (d *costs) ask(b *testing.B, s *stack, c *http.Client, n int) []time.Duration {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range costCallers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				took[i-1] = d.one(b, s, c)
			}
		})
	}
	wg.Wait()
	return took
}

func (d *costs) one(b *testing.B, s *stack, c *http.Client) time.Duration {
	number := d.asked.Add(1)
	headers := []string{"authorization", "Bearer tenant-a"}
	if d.way.keyed {
		headers = append(headers, "idempotency-key", fmt.Sprint(d.way.name, number))
	}
	if !d.way.differs {
		number = 0
	}
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d %s"}]}`, number, strings.Repeat("word ", costPrompt/5))
	a := s.postAs(b.Context(), c, d.way.path+"/chat/completions", body, headers...)
	if a.status != 200 || a.body != wholeChat {
		b.Errorf("%s: %s", d.way.name, a)
	}
	return a.took
}

func (d *costs) report(b *testing.B) {
	n := float64(len(d.took))
	b.ReportMetric(millis(percentile(d.took, 50)), d.way.name+"-p50-ms")
	b.ReportMetric(millis(percentile(d.took, 99)), d.way.name+"-p99-ms")
	b.ReportMetric(millis(d.quietest), d.way.name+"-p99-quietest-ms")
	b.ReportMetric(d.plugin.Seconds()*1e6/n, d.way.name+"-brownout-us/req")
	b.ReportMetric(d.proxy.Seconds()*1e6/n, d.way.name+"-envoy-us/req")
}
