package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/envoy-brownout/brownout/internal/loadgen"
)

// demoCmd shows everything on one machine: it starts what is needed, plays a script, and fails if a step does not
// show what it should.
type demoCmd struct {
	Envoy string `env:"ENVOY_BIN" placeholder:"PATH" help:"Envoy binary; if absent $$ENVOY_BIN, then an envoy on PATH."`
	Keep  bool   `help:"Leave everything running at the end and print the addresses, until Ctrl-C."`
	H2    bool   `name:"h2" help:"HTTP/2 in the failure modes and the retry table too; the burst is shown with both."`
}

// Help is the second half of "brownout demo --help".
func (*demoCmd) Help() string {
	return `Starts the stub, "brownout serve" and a real Envoy on free loopback ports and in
a private temporary folder, and shows

  1. the burst: 60 clients at once, 12 admitted, 48 shed;
  2. every failure mode as curl (without one: python3) sees it, and who is to blame;
  3. what retries do: none, fixed delay, full jitter;
  4. the books: every request has one outcome and every slot is back.

Everything is stopped and removed at the end, after Ctrl-C too. The exit code is
1 if something did not show what it should. "make demo" in the repository finds
an Envoy by itself.`
}

// demo is one run.
type demo struct {
	*page
	stack  *demoStack
	client demoClient
	h2     bool
}

// Run plays the demo and cleans up.
func (c *demoCmd) Run(ctx context.Context, std Stdio) error {
	bin, err := c.findEnvoy()
	if err != nil {
		return usageError(err)
	}
	client, err := findDemoClient(c.H2)
	if err != nil {
		return usageError(err)
	}
	// A parent-death signal is sent when the thread that forked ends: children are started from this one only.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	pipe := make(chan os.Signal, 1) // while somebody listens, a reader that has left is a write error and not the end
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	d := &demo{page: newPage(std.Out), client: client, h2: c.H2}
	d.line("starting a stub model server, brownout and Envoy (%s) ...", bin)
	if d.stack, err = startDemoStack(ctx, bin); err != nil {
		return interrupted(ctx, err)
	}
	err = d.play(ctx)
	if err == nil && c.Keep {
		err = d.keep(ctx)
	}
	return d.finish(ctx, std, err)
}

// findEnvoy is the binary to run. Kong has looked at $ENVOY_BIN already.
func (c *demoCmd) findEnvoy() (string, error) {
	name := c.Envoy
	if name == "" {
		name = "envoy"
	}
	bin, err := exec.LookPath(name)
	switch {
	case err == nil:
		return bin, nil
	case c.Envoy != "":
		return "", fmt.Errorf("no Envoy at %s: %w (--envoy or $ENVOY_BIN: the path of an Envoy binary, 1.36 or newer)", c.Envoy, err)
	}
	return "", errors.New("no Envoy: neither --envoy nor $ENVOY_BIN is given and there is no envoy on PATH " +
		"(run \"make demo\" in the repository, which fetches one, or give the path scripts/get-envoy.sh prints with --envoy)")
}

// play runs the script. An error means that a step could not be shown; one that shows the wrong thing is a failed
// check, and the script goes on.
func (d *demo) play(ctx context.Context) error {
	d.introduce()
	steps := []func(context.Context) error{d.bursts, d.failureModes, d.retries, d.books}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if d.err != nil {
			return fmt.Errorf("print: %w", d.err)
		}
	}
	return nil
}

func (d *demo) introduce() {
	s := d.stack
	d.heading("brownout: compute is rationed, answers stay honest")
	d.block(fmt.Sprintf(`  client ---> Envoy %-8s ---> stub model server
              %s      %s
                 |
                 +-- ext_proc and the seal over Unix sockets --> brownout serve
                                                                 metrics %s
                                                                 admin   %s`,
		s.envoyVersion, s.envoyAddr, s.stubAddr, s.httpAddr, s.adminAddr))
	d.line("")
	d.line("The policy, %s:", s.policyPath)
	d.line("")
	d.block(indent(demoPolicy, "    "))
	d.line("")
	d.words(`Envoy's configuration was rendered from it: brownout envoy bootstrap --policy FILE --upstream TIER=HOST:PORT ...`)
}

// bursts is the first part: the seed's load test, with both protocols.
func (d *demo) bursts(ctx context.Context) error {
	d.heading("1. The burst: 60 clients at one instant, 30 ms of work each")
	d.words("Four slots and eight waiting places: twelve are admitted, 48 are refused at once, before the model sees them.")
	for _, h2 := range []bool{false, true} {
		if err := d.burst(ctx, h2); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) burst(ctx context.Context, h2 bool) error {
	g, err := loadgen.Open(ctx, d.load(h2))
	if err != nil {
		return err
	}
	defer g.Close()
	d.line("\n  %s clients, as \"brownout load --concurrency %d --latency %s\" sends them:", protocolName(h2), demoClients, demoLatency)
	for left := maxBursts; ; left-- {
		late, err := d.onceBurst(ctx, g, left > 1)
		if err != nil || !late {
			return err
		}
		d.words("The counts hold but the answers were late: something else uses this machine. Once more.")
	}
}

// maxBursts is how often a burst is sent while its counts hold and only its times do not. Times depend on what else
// the machine does; counts must hold every time.
const maxBursts = 3

// onceBurst sends one burst and judges it. late: only a time was missed, and again says that another burst may tell;
// then no time has been judged.
func (d *demo) onceBurst(ctx context.Context, g *loadgen.Generator, again bool) (late bool, err error) {
	before, err := d.stack.envoyStat(ctx, statStreams)
	if err != nil {
		return false, err
	}
	r, err := g.Burst(ctx, loadgen.Plan{})
	if err != nil {
		return false, err
	}
	after, err := d.stack.envoyStat(ctx, statStreams)
	if err != nil {
		return false, err
	}
	d.line("")
	d.report(r)
	failed := d.failed
	for _, c := range r.Checks(loadgen.Expect{Counts: map[string]int{"admitted": 12, "shed": 48, "inflight_max": 4, "queued_max": 8, "started": 12}}) {
		d.check(c)
	}
	d.expect(r.Reasons["queue_full"] == 48, fmt.Sprintf("reasons: %d times queue_full", r.Reasons["queue_full"]))
	d.expect(after-before == demoClients, fmt.Sprintf("Envoy opened %d streams to brownout (ext_proc.streams_started rose from %d to %d)", after-before, before, after))
	times := r.Checks(loadgen.Expect{P95: 200 * time.Millisecond, Max: 2500 * time.Millisecond})
	if again && d.failed == failed && slices.ContainsFunc(times, func(c loadgen.Check) bool { return !c.OK }) {
		return true, nil
	}
	for _, c := range times {
		d.check(c)
	}
	return false, nil
}

// The seed's load.
const (
	demoClients = 60
	demoLatency = "30ms"
)

func (d *demo) load(h2 bool) loadgen.Config {
	s := d.stack
	return loadgen.Config{
		URL: "http://" + s.envoyAddr + demoPath, Clients: demoClients, Latency: demoLatency, HTTP2: h2, Body: []byte("{}"),
		Stub: "http://" + s.stubAddr, Metrics: "http://" + s.httpAddr + "/metrics", Admin: "http://" + s.adminAddr, Seed: 1,
	}
}

// retries is the third part: the same burst with clients that come back.
func (d *demo) retries(ctx context.Context) error {
	d.heading("3. Retries: the same burst with clients that come back")
	d.words("Without retries 48 users leave empty-handed. With a fixed delay all of them return at the same instant, three times over. " +
		"With full jitter they spread out, and a ceiling of one retry bounds what they may add.")
	d.line("")
	g, err := loadgen.Open(ctx, d.load(d.h2))
	if err != nil {
		return err
	}
	defer g.Close()
	const delay = 500 * time.Millisecond
	table, err := g.Compare(ctx, []loadgen.Plan{
		{Backoff: loadgen.BackoffNone},
		{Backoff: loadgen.BackoffFixed, Retries: 3, Delay: delay},
		{Backoff: loadgen.BackoffFullJitter, Retries: 1, Delay: delay},
	})
	if err != nil {
		return err
	}
	d.table(table)
	for _, c := range table.Checks() {
		d.check(c)
	}
	return nil
}

// keep leaves everything running until ctx ends or a part of it does.
func (d *demo) keep(ctx context.Context) error {
	s := d.stack
	d.heading("Running until Ctrl-C")
	d.block(fmt.Sprintf(`  Envoy listener   http://%s
  Envoy admin      http://%s
  metrics          http://%s/metrics
  debug state      http://%s/debug/state
  stub             http://%s/stub/stats
  policy           %s (edit it: brownout reloads)
  logs             %s, %s`, s.envoyAddr, s.envoyAdmin, s.httpAddr, s.adminAddr, s.stubAddr, s.policyPath, s.brownout.logPath, s.envoy.logPath))
	d.line("")
	d.block(fmt.Sprintf(`  curl -i -d '{}' http://%[1]s%[2]s
  curl -i -d '{}' -H 'x-stub-mode: slow' -H 'x-budget-ms: 500' http://%[1]s%[2]s
  curl -s http://%[3]s/debug/state`, s.envoyAddr, demoPath, s.adminAddr))
	select {
	case <-ctx.Done():
		return nil
	case <-s.envoy.done:
		return s.envoy.unexpected()
	case <-s.brownout.done:
		return s.brownout.unexpected()
	}
}

// finish stops everything and turns what happened into the exit code.
func (d *demo) finish(ctx context.Context, std Stdio, err error) error {
	if err != nil && ctx.Err() == nil && d.err == nil {
		d.stack.dumpLogs(std.Err)
	}
	code, stopErr := d.stack.stop()
	if err != nil {
		return interrupted(ctx, errors.Join(err, stopErr))
	}
	d.line("")
	d.expect(code == 0 && stopErr == nil, fmt.Sprintf("stopped: Envoy, brownout (exit code %d), the stub; removed %s", code, d.stack.dir))
	d.line("")
	if d.failed > 0 {
		d.line("%d of %d checks FAILED: see the lines that begin with FAIL", d.failed, d.checks)
	} else {
		d.line("all %d checks hold", d.checks)
	}
	switch {
	case stopErr != nil:
		return stopErr
	case d.err != nil:
		return fmt.Errorf("print: %w", d.err)
	case d.failed > 0:
		return silentExit(ExitFailure)
	}
	return nil
}

// interrupted says so instead of naming whatever broke because of it.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("demo: interrupted; everything has been stopped and removed")
	}
	return fmt.Errorf("demo: %w", err)
}

func protocolName(h2 bool) string {
	if h2 {
		return "HTTP/2"
	}
	return "HTTP/1.1"
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by)
}
