package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runStub runs "brownout stub" on a free port until the test ends and returns its base URL.
func runStub(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- Main(ctx, append([]string{"stub", "--listen", "127.0.0.1:0"}, args...), Stdio{Out: io.Discard, Err: w})
	}()
	lines := bufio.NewScanner(r)
	if !lines.Scan() {
		t.Fatal("the stub said nothing")
	}
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != ExitOK {
			t.Errorf("the stub ended with exit code %d", code)
		}
	})
	address := regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	if address == "" {
		t.Fatalf("no address in %q", lines.Text())
	}
	return address
}

// runLoad runs "brownout load" and returns its exit code and output.
func runLoad(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(t.Context(), append([]string{"load"}, args...), Stdio{Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestLoadPrintsTheReportAndItsChecks(t *testing.T) {
	url := runStub(t)
	for _, proto := range [][]string{nil, {"--h2"}} {
		args := append([]string{"--url", url + "/v1/x", "--stub", url, "--concurrency", "6", "--latency", "30ms",
			"--expect", "admitted=6,shed=0", "--p95", "5s", "--max", "6s"}, proto...)
		code, out, errs := runLoad(t, args...)
		want := regexp.MustCompile(`^admitted=6 shed=0 reasons=\{\}
p50=\d+ms p95=\d+ms max=\d+ms inflight_max=6
ok  0 shed as designed
ok  p95 \d+ms under 5000ms ceiling
ok  max \d+ms under 6000ms budget
$`)
		if code != ExitOK || !want.MatchString(out) {
			t.Errorf("%v: exit code %d, output:\n%s%s", proto, code, out, errs)
		}
	}
}

func TestLoadEndsWithOneWhenAnExpectationFails(t *testing.T) {
	url := runStub(t, "--mode", "throttle")
	code, out, _ := runLoad(t, "--url", url+"/v1/x", "--concurrency", "3", "--expect", "admitted=3")
	if want := "admitted=0 shed=0 reasons={}\np50=- p95=- max=-\nother=3 {\"429\":3}\nFAIL admitted 0, expected 3\nFAIL other 3, expected 0\n"; code != ExitFailure || out != want {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
}

func TestLoadPrintsOneJSONDocument(t *testing.T) {
	url := runStub(t)
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := runLoad(t, "--url", url, "--stub", url, "--concurrency", "2", "--latency", "", "--json", "--max", "1ns",
		"--header", "x-stub-mode: error", "--header", "x-a:b", "--body", "@"+body)
	var got struct {
		Users, Admitted, Other int
		Others                 map[string]int
		Checks                 []struct{ OK bool }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if code != ExitFailure || got.Users != 2 || got.Other != 2 || got.Others["500"] != 2 || len(got.Checks) != 1 || got.Checks[0].OK {
		t.Errorf("exit code %d, got %+v", code, got)
	}
}

func TestLoadComparesRetriesInOneTable(t *testing.T) {
	url := runStub(t)
	// Nothing is shed by a stub alone, so the checks cannot hold: the table says so.
	code, out, _ := runLoad(t, "--url", url, "--stub", url, "--concurrency", "3", "--compare", "--retry-delay", "1ms")
	for _, want := range []string{"\nnone ", "\nfixed x3 ", "\nfull-jitter x1 ", "FAIL full-jitter x1 saw 0 sheds, fixed x3 saw 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if code != ExitFailure {
		t.Errorf("exit code %d", code)
	}
}

func TestBadStubAndLoadUsageEndsWithTwo(t *testing.T) {
	t.Setenv("MODE", "production") // a name many environments use for something else
	load := func(args ...string) []string {
		return append([]string{"load", "--url", "http://127.0.0.1:1"}, args...)
	}
	for want, args := range map[string][]string{
		"mode":            {"stub"},
		"--latency":       {"stub", "--mode", "ok", "--latency", "soon"},
		"slots":           {"stub", "--mode", "ok", "--slots", "-1"},
		"--expect":        load("--expect", "p95=1"),
		"--p95":           load("--p95=-1s"),
		"backoff none":    load("--retries", "1"),
		"\"often\"":       load("--backoff", "often", "--retries", "1"),
		"NAME:VALUE":      load("--header", "x"),
		"--body":          load("--body", "@"+filepath.Join(t.TempDir(), "none")),
		"--compare":       load("--compare", "--p95", "1s"),
		"retries is out ": load("--compare", "--fixed-retries", "99"),
	} {
		var errs bytes.Buffer
		if code := Main(t.Context(), args, Stdio{Out: io.Discard, Err: &errs}); code != ExitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d, want %d with %q, said %q", args, code, ExitUsage, want, errs.String())
		}
	}
}
