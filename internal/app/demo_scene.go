package app

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// shownHeaders are the headers of an answer that matter here.
func shownHeaders() []string {
	return []string{"content-type", "retry-after", "retry-after-ms", "x-should-retry", "x-brownout-source", "x-tier", "x-degraded", "x-degraded-reason", "idempotent-replayed", "age"}
}

// failureModes is the second part: every scene with a real client.
func (d *demo) failureModes(ctx context.Context) error {
	d.heading("2. Failure modes: what a real client sees, and who is to blame")
	d.words("Each command below was run as shown. Of the answer's headers those that matter are printed.")
	d.line("\n  ENVOY=http://%s", d.stack.envoyAddr)
	if d.client.name != "curl" {
		d.line("\n  There is no curl here; post.py is:\n")
		d.quote(postScript)
	}
	for i, sc := range scenes() {
		if err := d.scene(ctx, i+1, sc); err != nil {
			return fmt.Errorf("%s: %w", sc.title, err)
		}
		if d.err != nil {
			return fmt.Errorf("print: %w", d.err)
		}
	}
	return nil
}

func (d *demo) scene(ctx context.Context, n int, sc scene) error {
	if sc.path == "" {
		sc.path = demoPath
	}
	d.subheading(fmt.Sprintf("2.%d  %s", n, sc.title))
	if sc.before != "" {
		d.words(sc.before)
	}
	d.line("")
	c, err := d.crowd(ctx, sc.running+sc.waiting)
	if err != nil {
		return err
	}
	defer c.leave()
	if err := d.settled(ctx, sc.running, sc.waiting); err != nil {
		return err
	}
	before, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.line("  $ %s", d.client.commandLine(sc.path, sc.headers))
	a, err := d.client.send(ctx, d.stack.dir, "http://"+d.stack.envoyAddr+sc.path, sc.headers)
	if err != nil {
		return err
	}
	s, err := d.seen(ctx, before, sc)
	if err != nil {
		return err
	}
	d.show(a)
	d.explain(sc, a, s)
	d.judge(sc, a, s)
	c.leave()
	return d.quiet(ctx, 1+sc.running+sc.waiting)
}

// settled waits until so many requests hold slots, are at the model, and wait.
func (d *demo) settled(ctx context.Context, running, waiting int) error {
	if err := d.stack.waitTier(ctx, running, waiting); err != nil {
		return err
	}
	return d.stack.until(ctx, d.stack.envoy, func() (bool, error) { return d.stack.stub.Stats().Inflight == running, nil })
}

// quiet waits until everything a scene sent, n requests, has ended and is in Envoy's log.
func (d *demo) quiet(ctx context.Context, n int) error {
	if err := d.settled(ctx, 0, 0); err != nil {
		return err
	}
	_, err := d.stack.newEntries(ctx, n)
	return err
}

// crowd is requests of the demo's own that hold slots and places until they leave.
type crowd struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// leave hangs up and waits for every client to be gone. It may be called more than once.
func (c *crowd) leave() {
	c.cancel()
	c.wg.Wait()
}

// crowd sends n requests that the stub answers after 8 s only.
func (d *demo) crowd(ctx context.Context, n int) (*crowd, error) {
	c := new(crowd)
	ctx, c.cancel = context.WithCancel(ctx)
	for range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.stack.envoyAddr+demoPath, strings.NewReader("{}"))
		if err != nil {
			c.leave()
			return nil, err
		}
		req.Header.Set(stub.HeaderMode, string(stub.ModeSlow))
		req.Header.Set("x-budget-ms", "10000")
		c.wg.Go(func() {
			t := &http.Transport{DisableKeepAlives: true}
			resp, err := t.RoundTrip(req)
			if err != nil {
				return // it has left, as it was meant to; one that failed shows as a slot that nobody holds
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body) // likewise
		})
	}
	return c, nil
}

// glance is what the counters say at one moment.
type glance struct {
	outcomes, ignored map[string]int
	stub              stub.Stats
}

// look reads the counters and remembers where the access log ends.
func (d *demo) look(ctx context.Context) (glance, error) {
	m, err := d.stack.metrics(ctx)
	if err != nil {
		return glance{}, err
	}
	return glance{m.by("brownout_requests_total", "outcome"), m.by("brownout_ignored_headers_total", "header"), d.stack.stub.Stats()},
		d.stack.skipLog()
}

// sight is what others than the client saw of one request.
type sight struct {
	entry              logEntry
	outcomes           []string
	ignored            int
	arrived, cancelled int
}

// seen waits until the request is counted, logged and, where it was cancelled, has been dropped by the model.
func (d *demo) seen(ctx context.Context, before glance, sc scene) (sight, error) {
	var s sight
	err := d.stack.until(ctx, d.stack.brownout, func() (bool, error) {
		m, err := d.stack.metrics(ctx)
		if err != nil {
			return false, err
		}
		s.outcomes = risen(before.outcomes, m.by("brownout_requests_total", "outcome"))
		s.ignored = m.by("brownout_ignored_headers_total", "header")[sc.ignored] - before.ignored[sc.ignored]
		now := d.stack.stub.Stats()
		s.arrived, s.cancelled = now.Arrived-before.stub.Arrived, now.Cancelled-before.stub.Cancelled
		return len(s.outcomes) > 0 && s.cancelled >= sc.cancelled, nil
	})
	if err != nil {
		return s, fmt.Errorf("brownout has not counted it: %w", err)
	}
	entries, err := d.stack.newEntries(ctx, 1)
	if err == nil {
		s.entry = entries[0]
	}
	return s, err
}

// risen lists the outcomes counted since, each as often as it was.
func risen(before, after map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		for range after[name] - before[name] {
			list = append(list, name)
		}
	}
	return list
}

// show prints what the client printed.
func (d *demo) show(a clientAnswer) {
	d.quote(a.line)
	for _, h := range a.headers {
		if slices.Contains(shownHeaders(), h[0]) {
			d.quote(h[0] + ": " + h[1])
		}
	}
	d.line("")
	if a.body != "" {
		d.quote(strings.TrimRight(a.body, "\n"))
	}
	d.quote(a.stderr)
	d.line("    (exit code %d)\n", a.exit)
}

// cutLooksClean says whether this Envoy hides a cut from an HTTP/2 client: 1.36 resets the stream with NO_ERROR, which
// curl takes for an end; from 1.37 on it is INTERNAL_ERROR.
func (d *demo) cutLooksClean(sc scene) bool {
	return d.h2 && sc.exitH2 != 0 && strings.HasPrefix(d.stack.envoyVersion, "1.36.")
}

// explain says what happened and who is to blame.
func (d *demo) explain(sc scene, a clientAnswer, s sight) {
	d.words(sc.after)
	if d.cutLooksClean(sc) {
		d.words("With this Envoy not even that: 1.36 resets an HTTP/2 stream with NO_ERROR, which curl takes for an end. Use 1.37 or newer.")
	}
	who := sc.blame
	if who == "" {
		who = blame(a.header("x-brownout-source"), a.status)
	}
	d.line("")
	d.words("To blame: " + who + ".")
	d.words(fmt.Sprintf("brownout counted: %s. Envoy logged: %s.", strings.Join(s.outcomes, ", "), s.entry))
}

// blame reads the label of an answer as an operator would.
func blame(source string, status int) string {
	switch {
	case source == "shed":
		return "this side, where brownout refused it before the model saw it (x-brownout-source: shed)"
	case source == "deadline":
		return "the upstream, which had it and missed the caller's time (x-brownout-source: deadline)"
	case source == "envoy":
		return "the upstream or the way to it, for Envoy got no answer (x-brownout-source: envoy)"
	case source == "upstream" && status >= 400:
		return "the upstream, which wrote this answer itself (x-brownout-source: upstream)"
	case source == "upstream":
		return "nobody"
	}
	return "unknown, for the answer has no label: brownout was not there"
}

// judge compares with what the scene promises.
func (d *demo) judge(sc scene, a clientAnswer, s sight) {
	exit := sc.exit
	if d.h2 && sc.exitH2 != 0 {
		exit = sc.exitH2
	}
	if d.cutLooksClean(sc) {
		exit = 0
	}
	v := verdictOf{}
	v.equal("status", a.status, sc.status)
	v.equal("exit code", a.exit, exit)
	v.header(a, "x-brownout-source", sc.source)
	v.header(a, "x-tier", sc.tier)
	for _, name := range slices.Sorted(maps.Keys(sc.want)) {
		v.header(a, name, sc.want[name])
	}
	if !strings.Contains(a.body, sc.body) {
		v.bad = append(v.bad, fmt.Sprintf("the body lacks %s", sc.body))
	}
	v.equal("counted as", strings.Join(s.outcomes, ","), sc.outcome)
	v.equal("calls that reached the model", s.arrived, sc.arrived)
	if sc.cancelled > 0 {
		v.equal("calls cancelled at the model", s.cancelled, sc.cancelled)
	}
	if sc.ignored != "" {
		v.equal("brownout_ignored_headers_total rose by", s.ignored, 1)
	}
	if took := time.Duration(s.entry.Duration) * time.Millisecond; sc.upTo > 0 {
		v.that(took >= sc.from && took <= sc.upTo, fmt.Sprintf("answered after %s", took), fmt.Sprintf("not between %s and %s", sc.from, sc.upTo))
	}
	for _, text := range v.bad {
		d.expect(false, text)
	}
	if len(v.bad) == 0 {
		d.expect(true, strings.Join(v.good, ", "))
	}
}

// verdictOf collects what holds and what does not.
type verdictOf struct{ good, bad []string }

func (v *verdictOf) that(ok bool, fact, complaint string) {
	if ok {
		v.good = append(v.good, fact)
		return
	}
	v.bad = append(v.bad, fact+", "+complaint)
}

func (v *verdictOf) equal(what string, got, want any) {
	v.that(got == want, fmt.Sprintf("%s %v", what, got), fmt.Sprintf("want %v", want))
}

func (v *verdictOf) header(a clientAnswer, name, want string) {
	got := a.header(name)
	switch {
	case want == anyValue:
		v.that(got != "", name+" present", "or rather not")
	case want == "":
		v.that(got == "", "no "+name, fmt.Sprintf("but %q", got))
	default:
		v.equal(name, got, want)
	}
}
