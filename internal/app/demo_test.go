package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-brownout/brownout/internal/loadgen"
	"github.com/envoy-brownout/brownout/internal/metrics"
	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/policy"
)

// demoClientsHere are the clients there are on this machine: python3 is a prerequisite, curl is preferred where it is.
func demoClientsHere(t *testing.T) []demoClient {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	list := []demoClient{{name: "python3", bin: python}}
	if curl, err := exec.LookPath("curl"); err == nil {
		list = append(list, demoClient{name: "curl", bin: curl})
	}
	return list
}

func TestEveryDemoClientShowsTheSameAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Seen", r.Method+" "+r.Header.Get("x-budget-ms")+" "+string(body))
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"reason":"queue_full"}`)
	}))
	defer srv.Close()
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	for _, c := range demoClientsHere(t) {
		t.Run(c.name, func(t *testing.T) {
			a, err := c.send(t.Context(), t.TempDir(), srv.URL+"/v1/x", []string{"x-budget-ms: 400"})
			if err != nil {
				t.Fatal(err)
			}
			if a.status != 503 || a.line != "HTTP/1.1 503 Service Unavailable" || a.exit != 0 || a.header("x-seen") != "POST 400 {}" ||
				strings.TrimSpace(a.body) != `{"reason":"queue_full"}` || a.stderr != "" {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestEveryDemoClientEndsACutAnswerWithExitCode18(t *testing.T) {
	s, err := stub.New(stub.Config{Mode: stub.ModeTruncate})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	srv := httptest.NewServer(s)
	defer srv.Close()
	for _, c := range demoClientsHere(t) {
		t.Run(c.name, func(t *testing.T) {
			a, err := c.send(t.Context(), t.TempDir(), srv.URL+"/v1/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.status != 200 || a.exit != 18 || a.stderr == "" || !strings.Contains(a.body, `data: {"delta":"partial "}`) {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestADemoClientThatGetsNoAnswerIsAnError(t *testing.T) {
	srv := httptest.NewServer(nil)
	srv.Close()
	for _, c := range demoClientsHere(t) {
		if a, err := c.send(t.Context(), t.TempDir(), srv.URL, nil); err == nil {
			t.Errorf("%s: no error, got %+v", c.name, a)
		}
	}
}

func TestCommandLinesAreQuotedAndBrokenForAShell(t *testing.T) {
	curl := demoClient{name: "curl", h2: true}
	got := curl.commandLine(demoPath, []string{"x-stub-mode: slow", "x-budget-ms: 400"})
	want := "curl -sS -i --http2-prior-knowledge -X POST -H 'x-stub-mode: slow' -H 'x-budget-ms: 400' \\\n      $ENVOY/v1/chat/completions"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got = demoClient{name: "python3"}.commandLine(gonePath, []string{"x-stub-mode: slow"})
	if want := "python3 post.py $ENVOY/v1/gone 'x-stub-mode: slow'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWrapKeepsWordsAndBreaksThoseThatFitNoLine(t *testing.T) {
	long := strings.Repeat("x", 2*pageWidth)
	got := wrap("one two "+long+" three", "  ", "    ")
	for line := range strings.Lines(got) {
		if len(strings.TrimRight(line, "\n")) > pageWidth {
			t.Errorf("line of %d: %q", len(line), line)
		}
	}
	if joined := strings.Join(strings.Fields(got), ""); joined != "onetwo"+long+"three" {
		t.Errorf("text changed: %q", joined)
	}
	if got := wrap("short", "- ", "  "); got != "- short\n" {
		t.Errorf("got %q", got)
	}
}

func TestThePageCountsItsChecksAndStopsAtAWriteError(t *testing.T) {
	var b strings.Builder
	p := newPage(&b)
	p.expect(true, "it holds")
	p.check(loadgen.Check{Text: "it does not"})
	if p.checks != 2 || p.failed != 1 || b.String() != "  ok  it holds\n  FAIL it does not\n" {
		t.Errorf("%d checks, %d failed, printed %q", p.checks, p.failed, b.String())
	}
	r, w := io.Pipe()
	r.Close()
	p = newPage(w)
	p.line("lost")
	if p.err == nil {
		t.Error("a write error was forgotten")
	}
}

func TestTheDemosPolicyHasNoProblemAndItsScenesAreComplete(t *testing.T) {
	snap, problems := policy.Parse("demo", []byte(demoPolicy))
	if snap == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	modes := map[string]bool{}
	for _, sc := range scenes() {
		if sc.title == "" || sc.status == 0 || sc.source == "" || sc.outcome == "" || sc.after == "" {
			t.Errorf("scene %q leaves something open: %+v", sc.title, sc)
		}
		for _, h := range sc.headers {
			if mode, ok := strings.CutPrefix(h, stub.HeaderMode+": "); ok {
				modes[mode] = true
			}
		}
	}
	for _, mode := range stub.ModeNames() {
		if !modes[mode] && mode != string(stub.ModeOK) && mode != string(stub.ModeStream) {
			t.Errorf("no scene shows mode %s", mode)
		}
	}
}

func TestBlameReadsTheLabel(t *testing.T) {
	for _, c := range []struct {
		source string
		status int
		begins string
	}{
		{"shed", 503, "this side"}, {"deadline", 504, "the upstream, which had it"}, {"envoy", 503, "the upstream or the way"},
		{"upstream", 503, "the upstream, which wrote"}, {"upstream", 200, "nobody"}, {"", 500, "unknown"},
	} {
		if got := blame(c.source, c.status); !strings.HasPrefix(got, c.begins) {
			t.Errorf("%s %d: %q, want it to begin with %q", c.source, c.status, got, c.begins)
		}
	}
}

func TestJudgeNamesWhatDoesNotHold(t *testing.T) {
	var b strings.Builder
	d := &demo{page: newPage(&b), stack: &demoStack{}}
	sc := scene{status: 503, source: "shed", outcome: "shed", body: "queue_full", want: map[string]string{"retry-after": anyValue}}
	a := clientAnswer{status: 503, body: "queue_full", headers: [][2]string{{"x-brownout-source", "shed"}, {"retry-after", "1"}}}
	d.judge(sc, a, sight{outcomes: []string{"shed"}})
	if d.failed != 0 || d.checks != 1 {
		t.Fatalf("a scene that holds: %s", b.String())
	}
	a.headers[0][1] = "upstream"
	d.judge(sc, a, sight{outcomes: []string{"ok"}, arrived: 1})
	for _, want := range []string{"FAIL x-brownout-source upstream, want shed", "FAIL counted as ok, want shed", "FAIL calls that reached the model 1, want 0"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestAccessLogEntriesShowTheirClass(t *testing.T) {
	got := map[string]int{}
	for _, e := range []logEntry{
		{Route: "unmatched", Status: 200}, {Flags: "DC"}, {Status: 200}, {Source: "shed", Status: 429}, {Source: "deadline", Status: 504},
		{Source: "upstream", Status: 200}, {Source: "upstream", Status: 429}, {Source: "upstream", Status: 503}, {Source: "envoy", Status: 503},
		{Source: "upstream", Status: 404},
	} {
		got[e.class()]++
	}
	want := map[string]int{"unmatched": 1, "client_aborted": 1, "unhandled": 1, "shed": 1, "deadline": 1, "answered": 1, "throttled": 1,
		"upstream's 503": 1, "upstream_error": 1, "bad_request": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

// TestTheBooksStandAsTheLogTellsThem: what was ended in its middle has the status it began with.
func TestTheBooksStandAsTheLogTellsThem(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, "", func() metrics.Live { return metrics.Live{} })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []metrics.Request{
		{Outcome: "ok"}, {Outcome: "empty"}, {Outcome: "deadline"}, {Outcome: "deadline", Dialect: "generic", Terminal: "deadline"},
		{Outcome: "truncated", Dialect: "generic", Terminal: "upstream_truncated"}, {Outcome: "evicted"}, {Outcome: "shed"},
	} {
		m.Finished(r)
	}
	gathered, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := demoMetrics{}
	for _, f := range gathered {
		counts[f.GetName()] = f
	}
	got := map[string]int{}
	for name, c := range counts.classes() {
		got[name] = c.n
	}
	want := map[string]int{"answered": 4, "deadline": 1, "upstream's 503": 1, "shed": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

func TestQuotedLinesBreakBetweenWords(t *testing.T) {
	var b strings.Builder
	newPage(&b).quote(`{"error":{"message":"the request was evicted to free capacity","type":"service_unavailable","param":null,"code":"evicted"}}` + "\n" +
		strings.Repeat("x", 100) + "\n")
	want := `    {"error":{"message":"the request was evicted to free capacity","type":"service_unavailable",
    "param":null,"code":"evicted"}}
    ` + strings.Repeat("x", 92) + "\n    " + strings.Repeat("x", 8) + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWithoutAnEnvoyTheDemoSaysHowToGetOne(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("ENVOY_BIN", "")
	for _, args := range [][]string{{"demo"}, {"demo", "--envoy", "/nowhere/envoy"}} {
		var out, msg strings.Builder
		code := Main(t.Context(), args, Stdio{Out: &out, Err: &msg})
		if code != ExitUsage || !strings.Contains(msg.String(), "Envoy") || !strings.Contains(msg.String(), "--envoy") {
			t.Errorf("%v: exit code %d, %q", args, code, msg.String())
		}
	}
}
