package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/internal/testkit"
	"github.com/envoy-brownout/brownout/policy"
)

// chatPolicy is the policy of most tests: one tier of four slots and eight places.
const chatPolicy = `version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
`

const chatPath = "/v1/chat/completions"

// stackOptions say what to start.
type stackOptions struct {
	policy       string       // default chatPolicy
	scheme       envoy.Scheme // to the upstream; default HTTP/1.1
	stub         stub.Config
	noUpstream   bool                       // the upstream's port answers nobody
	upstreamAddr string                     // an upstream of the test's own instead of the stub
	internal     []string                   // networks Envoy takes for internal
	edit         func(config []byte) []byte // changes Envoy's configuration
	tcp          bool                       // Envoy reaches brownout over TCP instead of a Unix socket
	processorTLS envoy.ProcessorTLS         // …and over TLS; serve has the other side
	serve        []string                   // further flags of brownout serve
	foreignSeal  bool                       // Envoy's sealed way leads to a second brownout
}

// stack is brownout, a real Envoy and a stub upstream.
type stack struct {
	t          testing.TB
	envoy      *testkit.Envoy
	brownout   *testkit.Process
	stub       *stub.Stub
	policyPath string
	serveArgs  []string
	httpURL    string // of /metrics
	adminURL   string // of /debug/state
	sockets    string // folder of the Unix sockets
}

// socket is the address of a socket: extproc, seal or inner.
func (s *stack) socket(name string) string { return "unix:" + filepath.Join(s.sockets, name+".sock") }

func startStack(t testing.TB, o stackOptions) *stack {
	t.Helper()
	if o.policy == "" {
		o.policy = chatPolicy
	}
	s := &stack{t: t, policyPath: filepath.Join(t.TempDir(), "policy.yaml"), sockets: filepath.Join(testkit.SocketDir(t), "b")}
	if err := os.WriteFile(s.policyPath, []byte(o.policy), 0o644); err != nil {
		t.Fatal(err)
	}
	upstream := s.startStub(o)
	processor := s.socket("extproc")
	s.serveArgs = append([]string{"serve", "--policy", s.policyPath, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--log-format", "json", "--seal", s.socket("seal"), "--inner", s.socket("inner")}, o.serve...)
	if o.tcp {
		processor = testkit.FreeAddr(t)
		if o.processorTLS == (envoy.ProcessorTLS{}) {
			s.serveArgs = append(s.serveArgs, "--insecure")
		}
	}
	s.serveArgs = append(s.serveArgs, "--listen", processor)
	s.startBrownout()
	if o.foreignSeal {
		testkit.StartProcess(t, testkit.BuildBrownout(t), "serve", "--policy", s.policyPath, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--log-format", "json", "--listen", s.socket("extproc2"), "--seal", s.socket("seal2"), "--inner", s.socket("inner")).WaitLog(servingLine)
	}
	s.startEnvoy(o, upstream, processor)
	return s
}

// startStub starts the upstream in this process, so that its counters can be read directly.
func (s *stack) startStub(o stackOptions) (addr string) {
	s.t.Helper()
	if o.upstreamAddr != "" {
		return o.upstreamAddr
	}
	if o.noUpstream {
		return testkit.FreeAddr(s.t)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	if s.stub, err = stub.New(o.stub); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // t.Context ends before Cleanup; Envoy must go first
	done := make(chan error, 1)
	go func() { done <- stub.Serve(ctx, ln, s.stub) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Errorf("stub: %v", err)
		}
	})
	return ln.Addr().String()
}

var servingLine = regexp.MustCompile(`"msg":"serving".*"http":"([^"]+)","admin":"([^"]+)"`)

func (s *stack) startBrownout() {
	s.t.Helper()
	s.brownout = testkit.StartProcess(s.t, testkit.BuildBrownout(s.t), s.serveArgs...)
	m := s.brownout.WaitLog(servingLine)
	s.httpURL, s.adminURL = "http://"+m[1], "http://"+m[2]
	s.brownout.WaitReady(s.httpURL + "/readyz")
}

func (s *stack) startEnvoy(o stackOptions, upstream, processor string) {
	s.t.Helper()
	snap, problems := policy.Parse("policy.yaml", []byte(o.policy))
	if snap == nil {
		s.t.Fatal(problems)
	}
	log := testkit.AccessLogPath(s.t)
	opts := envoy.Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Processor: processor, ProcessorTLS: o.processorTLS, AccessLog: log,
		Seal: s.socket("seal"), Inner: s.socket("inner")}
	if o.foreignSeal {
		opts.Seal = s.socket("seal2")
	}
	host, port := hostPort(s.t, "http://"+upstream)
	for _, tier := range snap.Tiers {
		if tier.Model == nil {
			continue
		}
		opts.Upstreams = append(opts.Upstreams, envoy.Upstream{Tier: tier.Name, Scheme: o.scheme, Host: host, Port: port})
	}
	if testkit.EnvoyBefore(s.t, 1, 37) {
		opts.EnvoyVersion = "1.36"
	}
	opts.Internal = o.internal
	config, err := envoy.Bootstrap(snap, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if o.edit != nil {
		config = o.edit(config)
	}
	s.envoy = testkit.StartEnvoy(s.t, testkit.EnvoyConfig{Bootstrap: config, AccessLog: log})
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
	took   time.Duration
}

// reason is the top-level reason of the body, "" when there is none.
func (a answer) reason() string {
	var b struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal([]byte(a.body), &b) // an upstream's body need not be JSON
	return b.Reason
}

func (a answer) String() string {
	return fmt.Sprintf("status %d, source %q, tier %q, body %.200q, error %v, took %s", a.status, a.header.Get("x-brownout-source"),
		a.header.Get("x-tier"), a.body, a.err, a.took)
}

// send posts to path with pairs of header names and values.
func (s *stack) send(ctx context.Context, c *http.Client, path string, headers ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.envoy.URL(path), strings.NewReader("{}"))
	if err != nil {
		return answer{err: err}
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return do(c, req)
}

func do(c *http.Client, req *http.Request) answer {
	start := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(start)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err, time.Since(start)}
}

// background sends in a goroutine and returns where the answer will be.
func (s *stack) background(c *http.Client, path string, headers ...string) <-chan answer {
	ch := make(chan answer, 1)
	go func() { ch <- s.send(s.t.Context(), c, path, headers...) }()
	return ch
}

// scrape reads brownout's metrics.
func (s *stack) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	resp, err := http.Get(s.httpURL + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return families
}

// metric sums the samples of a family whose labels include the given pairs.
func (s *stack) metric(name string, labels ...string) int {
	s.t.Helper()
	return sumMetric(s.scrape()[name], labels...)
}

func sumMetric(f *dto.MetricFamily, labels ...string) int {
	sum := 0.0
	for _, m := range f.GetMetric() {
		if hasLabels(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return int(sum)
}

func hasLabels(m *dto.Metric, labels []string) bool {
	have := map[string]string{}
	for _, l := range m.GetLabel() {
		have[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if have[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// waitInflight waits until a tier holds so many slots and so many requests wait for it.
func (s *stack) waitInflight(tier string, used, waiting int) {
	s.t.Helper()
	testkit.Eventually(s.t, 10*time.Second, func() bool {
		f := s.scrape()
		return sumMetric(f["brownout_inflight"], "tier", tier) == used && sumMetric(f["brownout_queue_depth"], "tier", tier) == waiting
	}, fmt.Sprintf("tier %s never had %d in flight and %d waiting", tier, used, waiting))
}

// checkBooks waits for quiet and then compares brownout's counters with Envoy's access log and the stub's counters:
// every arrival has one outcome, no slot is held, and the log says the same by status and source.
func (s *stack) checkBooks() {
	s.t.Helper()
	log, counted := s.books()
	for what := range union(log, counted) {
		if log[what] != counted[what] {
			s.t.Errorf("%s: the access log has %d, brownout counted %d", what, log[what], counted[what])
		}
	}
}

// checkBooksWithAborts is checkBooks where clients leave at random moments. One that leaves while its answer is on the
// way is an abort to Envoy and answered to brownout; one that leaves before its headers reached brownout is an abort
// to Envoy alone. Every difference must be of that kind.
func (s *stack) checkBooksWithAborts() {
	s.t.Helper()
	log, counted := s.books()
	explained := counted["client_aborted"]
	for what := range union(log, counted) {
		if what == "client_aborted" {
			continue
		}
		if log[what] > counted[what] {
			s.t.Errorf("%s: the access log has %d, brownout counted %d", what, log[what], counted[what])
		}
		explained += counted[what] - log[what]
	}
	if log["client_aborted"] < explained {
		s.t.Errorf("the access log has %d aborts, brownout's counters need %d", log["client_aborted"], explained)
	}
}

// books waits for quiet, checks that nothing is left over, and sorts both sides' counts.
func (s *stack) books() (log, counted map[string]int) {
	s.t.Helper()
	testkit.Eventually(s.t, 10*time.Second, func() bool {
		f := s.scrape()
		return sumMetric(f["brownout_inflight"]) == 0 && sumMetric(f["brownout_queue_depth"]) == 0 &&
			sumMetric(f["brownout_arrivals_total"]) == sumMetric(f["brownout_requests_total"])
	}, "slots, waiters or requests without an outcome are left over")
	f := s.scrape()
	if n := sumMetric(f["brownout_unaccounted"]); n != 0 {
		s.t.Errorf("%d requests are unaccounted for", n)
	}
	if s.stub != nil {
		testkit.Eventually(s.t, 10*time.Second, func() bool { return s.stub.Stats().Inflight == 0 }, "the upstream is still at work")
	}
	log, counted = logCounts(s.envoy.WaitAccessLog(sumMetric(f["brownout_arrivals_total"]))), counterCounts(f)
	settleEvictions(log, counted, sumMetric(f["brownout_requests_total"], "outcome", "evicted"))
	settleReplaced(log, counted, replaced(f))
	return log, counted
}

// logCounts sorts the access log into what can be told from outside. A client that left before headers has no
// source; what the plugin did not handle has no source either, but a status.
func logCounts(log []testkit.AccessEntry) map[string]int {
	n := map[string]int{}
	for _, e := range log {
		switch {
		case e.Route == "unmatched":
			n["unmatched"]++
		case e.Flags == "DC" || e.Flags == "DR" || (e.Source == "" && e.Status == 0): // DC, DR: the client closed or reset
			n["client_aborted"]++
		case e.Source == "shed":
			n[fmt.Sprintf("%s %d", e.Source, e.Status)]++
		case e.Source == "replay" && e.Status >= 400: // 400, 409 and 422 of idempotency keys
			n["bad_request"]++
		case e.Source == "deadline", strings.HasPrefix(e.CodeDetails, "brownout_"),
			e.Source == "" && strings.HasPrefix(e.CodeDetails, "upstream_reset"): // cut while its headers were held, unsealed
			n["answered or ended"]++
		default:
			n[class(e.Source, e.Status)]++
		}
	}
	return n
}

// class is what an answer of the upstream's or Envoy's counts as.
func class(source string, status int) string {
	switch {
	case source == "" && status > 0:
		return fmt.Sprintf("unhandled %d", status)
	case status < 400:
		return "answered or ended"
	case status == 429:
		return "throttled"
	case status == 503 && source == "upstream":
		return "overloaded"
	case status >= 500:
		return "upstream_error"
	}
	return "bad_request"
}

// endedWell are outcomes of answers whose status was good or that we ended ourselves: the access log cannot tell them
// apart.
var endedWell = []string{"ok", "degraded", "replayed", "capped", "refusal", "empty", "truncated", "stalled", "deadline"}

// settleEvictions puts each eviction where the log has it: the body told, under a 503 as under a 200.
func settleEvictions(log, counted map[string]int, evicted int) {
	for range evicted {
		if log["overloaded"] > counted["overloaded"] {
			counted["overloaded"]++
		} else {
			counted["answered or ended"]++
		}
	}
}

// replaced is how many answers of the upstream may have been replaced by ones that need no compute.
func replaced(f map[string]*dto.MetricFamily) int {
	n := 0
	for _, m := range f["brownout_degraded_total"].GetMetric() {
		for _, reason := range []string{"upstream_throttled", "upstream_error", "preempted", "stale"} {
			if hasLabels(m, []string{"reason", reason}) {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// settleReplaced puts answers that took the place of an error where the log has them: to the log they are good answers,
// while the outcome stays what the upstream did.
func settleReplaced(log, counted map[string]int, most int) {
	for _, class := range []string{"throttled", "overloaded", "upstream_error"} {
		for counted[class] > log[class] && log["answered or ended"] > counted["answered or ended"] && most > 0 {
			counted[class]--
			counted["answered or ended"]++
			most--
		}
	}
}

// counterCounts sorts brownout's counters in the same way.
func counterCounts(f map[string]*dto.MetricFamily) map[string]int {
	n := map[string]int{}
	for _, m := range f["brownout_requests_total"].GetMetric() {
		v := int(m.GetCounter().GetValue())
		if v == 0 {
			continue
		}
		for _, o := range []string{"unmatched", "client_aborted", "throttled", "overloaded", "upstream_error", "bad_request"} {
			if hasLabels(m, []string{"outcome", o}) {
				n[o] += v
			}
		}
		if hasLabels(m, []string{"outcome", "shed"}) {
			n["shed 503"] += v
		}
		for _, o := range endedWell {
			if hasLabels(m, []string{"outcome", o}) {
				n["answered or ended"] += v
			}
		}
	}
	return n
}

func union(a, b map[string]int) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

// wire is one pair of protocols: downstream and upstream.
type wire struct {
	name     string
	h2       bool
	upstream envoy.Scheme
}

// wires are the four pairs every behaviour is tested on.
var wires = []wire{
	{"H1 to H1", false, envoy.SchemeHTTP}, {"H1 to H2", false, envoy.SchemeH2C},
	{"H2 to H1", true, envoy.SchemeHTTP}, {"H2 to H2", true, envoy.SchemeH2C},
}

// onEveryWire runs a test on all four pairs, each with a stack of its own, and checks the books at the end.
func onEveryWire(t *testing.T, o stackOptions, test func(t *testing.T, s *stack, c *http.Client)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			o := o
			o.scheme = w.upstream
			s := startStack(t, o)
			test(t, s, newClient(t, w.h2))
			s.checkBooks()
		})
	}
}
