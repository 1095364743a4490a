package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/loadgen"
	"github.com/envoy-brownout/brownout/internal/stub"
)

// loadCmd sends one burst, or with --compare three, and asserts what came of it.
type loadCmd struct {
	URL         string        `required:"" placeholder:"URL" help:"Where to send requests, with the path of a watched route."`
	Concurrency int           `default:"60" help:"Clients; each sends one request at the same instant."`
	Latency     string        `default:"30ms" placeholder:"D" help:"Service time asked of the stub by x-stub-latency; empty: not sent."`
	Method      string        `default:"POST" help:"Request method."`
	Body        string        `default:"{\"model\":\"stub\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}" help:"Request body; @FILE reads it from a file."`
	Header      []string      `sep:"none" placeholder:"NAME:VALUE" help:"Header of every request; repeatable."`
	H2          bool          `name:"h2" help:"HTTP/2 with prior knowledge instead of HTTP/1.1."`
	Connections int           `default:"4" help:"Connections shared by all clients with --h2; HTTP/1.1 opens one per client."`
	WarmPath    string        `default:"/brownout-warm-up" help:"Path the connections are warmed on; any status will do."`
	Timeout     time.Duration `default:"30s" help:"Longest wait for one answer."`

	Stub    string `placeholder:"URL" help:"Base URL of the stub, for inflight_max and upstream calls."`
	Metrics string `placeholder:"URL" help:"URL of brownout's metrics, for queued_max."`
	Admin   string `placeholder:"URL" help:"Base URL of brownout's admin listener, to reset its maxima before each burst."`

	Retries    int           `default:"0" help:"Most retries per client after its first attempt."`
	Backoff    string        `default:"none" help:"Wait before a retry: none, fixed or full-jitter."`
	RetryDelay time.Duration `default:"500ms" help:"The fixed delay; full jitter waits uniformly between 0 and this, doubled per retry."`
	Seed       uint64        `default:"1" help:"Seed of the jitter."`

	Compare       bool `help:"Compare no retries, fixed-delay retries and full-jitter retries, with the same --retry-delay, in one table."`
	FixedRetries  int  `default:"3" help:"Retries of the fixed-delay row of --compare."`
	JitterRetries int  `default:"1" help:"Ceiling of the full-jitter row of --compare."`

	Expect string        `placeholder:"NAME=N,..." help:"Fail unless these hold: admitted, shed, other, inflight_max, queued_max, started."`
	P95    time.Duration `name:"p95" placeholder:"D" help:"Fail if the 95th percentile over the admitted is above it."`
	Max    time.Duration `placeholder:"D" help:"Fail if the slowest admitted answer took longer."`
	JSON   bool          `name:"json" help:"Print one JSON document instead of text."`
}

// Help is the second half of "brownout load --help".
func (c *loadCmd) Help() string {
	return `Opens and warms the connections, waits until nothing is in flight, resets the
maxima of stub and brownout, and releases all clients at one instant. A user
is admitted if its last answer is a whole 2xx, shed if x-brownout-source says
so (without that header: 503 or 429 with a reason in the body). Anything else
is counted on a line of its own. Percentiles are over the admitted, from the
release to the end of the answer.

Clients retry sheds, 429, 5xx and broken connections unless the answer says
x-should-retry: false. They ignore retry-after. The exit code is 1 if an
expectation does not hold.

The article's load test:

  brownout load --url http://127.0.0.1:10000/v1/chat/completions
    --stub http://127.0.0.1:8787 --metrics http://127.0.0.1:9464/metrics
    --admin http://127.0.0.1:9465 --concurrency 60 --latency 30ms
    --expect admitted=12,shed=48 --p95 200ms --max 2500ms
`
}

// Run opens the connections, runs the bursts and reports.
func (c *loadCmd) Run(ctx context.Context, io Stdio) error {
	cfg, expect, err := c.config(io)
	if err != nil {
		return usageError(err)
	}
	plan := loadgen.Plan{Retries: c.Retries, Backoff: loadgen.Backoff(c.Backoff), Delay: c.RetryDelay}
	plans := c.plans()
	if !c.Compare {
		plans = []loadgen.Plan{plan}
	}
	for _, p := range plans {
		if err := p.Validate(); err != nil {
			return usageError(err)
		}
	}
	g, err := loadgen.Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer g.Close()
	if c.Compare {
		return c.compare(ctx, io, g, plans)
	}
	report, err := g.Burst(ctx, plan)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	checks := report.Checks(expect)
	if c.JSON {
		return finishJSON(io, struct {
			loadgen.Report
			Checks []loadgen.Check `json:"checks"`
		}{report, checks}, checks)
	}
	if err := report.WriteText(io.Out); err != nil {
		return err
	}
	return printChecks(io, checks)
}

// plans are the rows of --compare. Fixed delay and jitter share one delay: they differ in nothing but when and how
// often a client returns.
func (c *loadCmd) plans() []loadgen.Plan {
	return []loadgen.Plan{
		{Backoff: loadgen.BackoffNone},
		{Backoff: loadgen.BackoffFixed, Retries: c.FixedRetries, Delay: c.RetryDelay},
		{Backoff: loadgen.BackoffFullJitter, Retries: c.JitterRetries, Delay: c.RetryDelay},
	}
}

func (c *loadCmd) compare(ctx context.Context, io Stdio, g *loadgen.Generator, plans []loadgen.Plan) error {
	table, err := g.Compare(ctx, plans)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	checks := table.Checks()
	if c.JSON {
		return finishJSON(io, struct {
			loadgen.Comparison
			Checks []loadgen.Check `json:"checks"`
		}{table, checks}, checks)
	}
	if err := table.WriteText(io.Out); err != nil {
		return err
	}
	return printChecks(io, checks)
}

func (c *loadCmd) config(io Stdio) (loadgen.Config, loadgen.Expect, error) {
	var expect loadgen.Expect
	if c.Compare && (c.Expect != "" || c.P95 != 0 || c.Max != 0 || c.Retries != 0) {
		return loadgen.Config{}, expect, fmt.Errorf("--compare has expectations and retries of its own: leave out --expect, --p95, --max and --retries")
	}
	counts, err := loadgen.ParseCounts(c.Expect)
	if err != nil {
		return loadgen.Config{}, expect, fmt.Errorf("--expect: %w", err)
	}
	if c.P95 < 0 || c.Max < 0 {
		return loadgen.Config{}, expect, fmt.Errorf("--p95 and --max are durations above 0")
	}
	if c.Latency != "" {
		if _, err := stub.ParseLatency(c.Latency); err != nil {
			return loadgen.Config{}, expect, fmt.Errorf("--latency: %w", err)
		}
	}
	header, err := parseHeaders(c.Header)
	if err != nil {
		return loadgen.Config{}, expect, err
	}
	body, err := readArgument(c.Body)
	if err != nil {
		return loadgen.Config{}, expect, fmt.Errorf("--body: %w", err)
	}
	return loadgen.Config{
		URL: c.URL, WarmPath: c.WarmPath, Method: c.Method, Body: body, Header: header, Clients: c.Concurrency,
		Latency: c.Latency, HTTP2: c.H2, Connections: c.Connections, Timeout: c.Timeout,
		Stub: c.Stub, Metrics: c.Metrics, Admin: c.Admin, Seed: c.Seed, Progress: io.Err,
	}, loadgen.Expect{Counts: counts, P95: c.P95, Max: c.Max}, nil
}

func parseHeaders(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("--header %q is not of the form NAME:VALUE", line)
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h, nil
}

// readArgument returns text itself, or the contents of FILE for "@FILE".
func readArgument(text string) ([]byte, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		return os.ReadFile(name)
	}
	return []byte(text), nil
}

// printChecks prints the ok and FAIL lines; one FAIL makes the exit code 1.
func printChecks(io Stdio, checks []loadgen.Check) error {
	for _, c := range checks {
		if _, err := fmt.Fprintln(io.Out, c); err != nil {
			return err
		}
	}
	return verdict(checks)
}

func finishJSON(io Stdio, v any, checks []loadgen.Check) error {
	e := json.NewEncoder(io.Out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return verdict(checks)
}

func verdict(checks []loadgen.Check) error {
	for _, c := range checks {
		if !c.OK {
			return silentExit(ExitFailure)
		}
	}
	return nil
}
