package app

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/internal/admin"
	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

var update = flag.Bool("update", false, "rewrite testdata/explain/*.golden")

// explainFile is a file of this test.
func explainFile(name string) string { return filepath.Join("testdata", "explain", name) }

// explainOf runs the command on the test's policy.
func explainOf(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	return runPolicy(t, stdin, append([]string{"explain", explainFile("policy.yaml")}, args...)...)
}

// goldenExplain compares an output with a file, or rewrites the file under -update.
func goldenExplain(t *testing.T, name, got string) {
	t.Helper()
	path := explainFile(name + ".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", path, diff)
	}
}

// running serves a state as a brownout does.
func running(t *testing.T, change func(*debugState)) string {
	t.Helper()
	d := debugState{PolicyHash: "0123456789abcdef", Tiers: []debugTier{
		{Tier: "full", InPolicy: true, Limit: 9, InFlight: 4, Queue: 9, Waiting: 1, Next: []debugWaiter{{0, 10, 2000, 2050}}, ServiceMs: 600, ServiceSamples: 64},
		{Tier: "small", InPolicy: true, Limit: 16, InFlight: 3, Queue: 32},
	}}
	if change != nil {
		change(&d)
	}
	s := httptest.NewServer(admin.Private(func() any { return d }, func() {}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestExplainPrintsWhatAPolicyMakesOfARequest(t *testing.T) {
	body := explainFile("body.json")
	chat := []string{"--path", "/v1/chat/completions"}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"flags", []string{"--path", "/v1/chat/completions?api-key=hush&alt=x", "--host", "API.example", "--header", "Authorization: Bearer hush",
			"--header", "x-team: red", "--header", "x-budget-ms: 800", "--header", "x-budget-ms: 0.5", "--header", "Accept: text/event-stream", "--body", body}},
		{"http1", []string{"--request", explainFile("http1.txt")}},
		{"curl", []string{"--request", explainFile("curl.txt"), "--body", body}},
		{"http2", []string{"--request", explainFile("http2.txt")}},
		{"unmatched", []string{"--method", "PUT", "--path", "/v1/other"}},
		{"plain", []string{"--path", "/v1/embeddings", "--header", "x-envoy-expected-rq-timeout-ms: 60000", "--body", body}},
		{"expired", append(chat, "--header", "x-budget-ms: 0", "--body", body)},
		{"malformed", append(chat, "--header", "idempotency-key: hush,hush", "--body", body)},
		{"encoded", append(chat, "--header", "content-encoding: gzip", "--header", "authorization: hush", "--body", body)},
		{"nobody", chat},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := explainOf(t, "", c.args...)
			if code != ExitOK || errs != "" {
				t.Fatalf("exit %d, err %q", code, errs)
			}
			if strings.Contains(out, "hush") {
				t.Errorf("a secret is in\n%s", out)
			}
			goldenExplain(t, c.name, out)
		})
	}
}

func TestExplainPrintsJSONForMachines(t *testing.T) {
	code, out, errs := explainOf(t, "", "--json", "--request", explainFile("http1.txt"))
	if code != ExitOK || errs != "" || !json.Valid([]byte(out)) || strings.Contains(out, "hush") {
		t.Fatalf("exit %d, err %q, out %s", code, errs, out)
	}
	_, hash, _ := strings.Cut(out, `"policy_hash": "`)
	hash, _, _ = strings.Cut(hash, `"`)
	if len(hash) != 16 {
		t.Errorf("policy hash %q", hash)
	}
	goldenExplain(t, "json", strings.Replace(out, hash, "HASH", 1))
}

func TestExplainReadsTheRequestFromStandardInput(t *testing.T) {
	src, err := os.ReadFile(explainFile("http1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := explainOf(t, "", "--request", explainFile("http1.txt"))
	if code, out, errs := explainOf(t, string(src), "--request", "-"); code != ExitOK || out != want {
		t.Errorf("exit %d, err %q\n%s", code, errs, out)
	}
	if _, out, _ := explainOf(t, `{"stream":true}`, "--path", "/v1/chat/completions", "--body", "-"); !strings.Contains(out, "the answer is a stream") {
		t.Errorf("the body is not read:\n%s", out)
	}
}

func TestFlagsChangeACapturedRequest(t *testing.T) {
	_, out, errs := explainOf(t, "", "--request", explainFile("http1.txt"), "--method", "GET", "--path", "/v1/batches", "--header", "x-budget-ms: 300")
	if !strings.Contains(out, "GET /v1/batches on api.example\n") || !strings.Contains(out, "batch\n") || !strings.Contains(out, "300ms, by x-budget-ms") || errs != "" {
		t.Errorf("err %q\n%s", errs, out)
	}
}

func TestExplainAsksARunningProcess(t *testing.T) {
	args := []string{"--path", "/v1/chat/completions", "--body", explainFile("body.json"), "--header", "x-api-key: hush", "--admin"}
	url := running(t, nil)
	code, out, errs := explainOf(t, "", append(args, url)...)
	if code != ExitOK || errs != "" {
		t.Fatalf("exit %d, err %q", code, errs)
	}
	goldenExplain(t, "busy", strings.ReplaceAll(out, url, "http://ADMIN"))

	_, doc, _ := explainOf(t, "", append(args, url, "--json")...)
	var x explained
	if err := json.Unmarshal([]byte(doc), &x); err == nil && x.Process.SamePolicy {
		t.Error("another policy is taken for this one")
	}
	src, err := os.ReadFile(explainFile("policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	hash := checkPolicy("-", bytes.NewReader(src)).Hash
	same := running(t, func(d *debugState) { d.PolicyHash, d.Tiers[0].InFlight = hash, 9 })
	if _, out, _ := explainOf(t, "", append(args, same)...); !strings.Contains(out, "9 of 9 slots") || strings.Contains(out, "another one") {
		t.Errorf("under the same policy its bounds count too:\n%s", out)
	}
}

func TestExplainAsksBrownoutServe(t *testing.T) {
	s := startServe(t, narrow)
	holder := open(t, s.dial())
	holder.request()
	holder.expect("continue full")
	path := policyFile(t, narrow)
	explain := func() string {
		t.Helper()
		code, out, errs := runPolicy(t, "", "explain", path, "--path", "/v1/chat/completions", "--admin", "http://"+s.private)
		if code != ExitOK || errs != "" {
			t.Fatalf("exit %d, err %q", code, errs)
		}
		return out
	}
	if out := explain(); !strings.Contains(out, "waits for a slot of full") || !strings.Contains(out, "(1 of 1 slots, 0 of 1 places to wait)") {
		t.Errorf("a slot is held:\n%s", out)
	}
	waiter := open(t, s.dial())
	waiter.request()
	eventually(t, "one waits", func() bool { return s.state().Tiers[0].Waiting == 1 })
	if out := explain(); !strings.Contains(out, "is answered 503: queue_full by full") {
		t.Errorf("slot and queue are full:\n%s", out)
	}
	holder.finish()
	waiter.expect("continue full")
	waiter.finish()
}

func TestExplainSaysWhatIsWrongWithItsFlags(t *testing.T) {
	notFound := httptest.NewServer(http.NotFoundHandler())
	defer notFound.Close()
	impossible := running(t, func(d *debugState) { d.Tiers[0].InFlight = 1 << 40 })
	for _, c := range []struct {
		name string
		code int
		args []string
		want string
	}{
		{"no path", ExitUsage, nil, "--path is missing (give one such as --path /v1/chat/completions, or a captured request with --request FILE)"},
		{"method", ExitUsage, []string{"--path", "/", "--method", "post"}, `--method "post": not a request method (write one such as POST, in upper case)`},
		{"path", ExitUsage, []string{"--path", "v1?key=hush"}, `--path "v1": does not begin with a slash (`},
		{"URL", ExitUsage, []string{"--path", "https://me:hush@h/v1"}, `--path "https://h/v1": does not begin`},
		{"blank in the path", ExitUsage, []string{"--path", "/a b"}, `--path "/a b": has a blank or a control character (`},
		{"header", ExitUsage, []string{"--path", "/", "--header", "a: b", "--header", "hush"}, `--header, the 2nd one: has no colon (write "name: value")`},
		{"header name", ExitUsage, []string{"--path", "/", "--header", "hush hush: x"}, `--header, the 1st one: has a character in its name`},
		{"pseudo header", ExitUsage, []string{"--path", "/", "--header", ":path: /"}, `(use --method, --path and --host)`},
		{"header over two lines", ExitUsage, []string{"--path", "/", "--header", "a: hush\r\nb: c"}, "a: its value has a line break ("},
		{"body in the flag", ExitUsage, []string{"--path", "/", "--body", `{"a":"hush"}`}, "--body takes the name of a file, not its content ("},
		{"no such body", ExitUsage, []string{"--path", "/", "--body", "missing.json"}, "--body: open missing.json: no such file"},
		{"no such request", ExitUsage, []string{"--request", "missing.txt"}, "--request: open missing.txt: no such file"},
		{"two from standard input", ExitUsage, []string{"--request", "-", "--body", "-"}, `--request and --body are all "-"`},
		{"admin", ExitUsage, []string{"--path", "/", "--admin", "me:hush@h:1"}, `--admin "h:1": not a URL (write one such as http://127.0.0.1:9465)`},
		{"nobody there", ExitFailure, []string{"--path", "/", "--admin", "http://me:hush@127.0.0.1:1"}, "explain: --admin http://me:xxxxx@127.0.0.1:1: "},
		{"another server", ExitFailure, []string{"--path", "/", "--admin", notFound.URL}, "/debug/state answers 404 (is it the --admin address, and not --http?)"},
		{"impossible figures", ExitFailure, []string{"--path", "/", "--admin", impossible}, `impossible figures for tier "full"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := explainOf(t, "", c.args...)
			if code != c.code || out != "" || !strings.HasPrefix(errs, "brownout: ") || !strings.Contains(errs, c.want) || strings.Contains(errs, "hush") {
				t.Errorf("exit %d, want %d; out %q\nerr  %q\nwant %q", code, c.code, out, errs, c.want)
			}
		})
	}
}

func TestExplainReportsAllFlagsAtOnceAndABadPolicy(t *testing.T) {
	code, _, errs := explainOf(t, "", "--path", "x", "--method", "get", "--admin", "y")
	if n := strings.Count(errs, "brownout: --"); code != ExitUsage || n != 3 {
		t.Errorf("exit %d, %d messages in %q", code, n, errs)
	}
	code, out, errs := runPolicy(t, strings.Replace(goodPolicy, "[full]", "[ful]", 1), "explain", "-", "--path", "/")
	if code != ExitUsage || out != "" || !strings.HasPrefix(errs, `<stdin>:3:32: error: there is no tier "ful"`) {
		t.Errorf("exit %d, out %q, err %q", code, out, errs)
	}
	if code, _, errs := runPolicy(t, "", "explain", "missing.yaml", "--path", "/"); code != ExitUsage || !strings.Contains(errs, "missing.yaml") {
		t.Errorf("exit %d, err %q", code, errs)
	}
}

func TestExplainHelpTeachesByExample(t *testing.T) {
	code, out, _ := runPolicy(t, "", "explain", "--help")
	for _, want := range []string{"brownout policy explain policy.yaml --path /v1/chat/completions", "--request captured.txt", "never printed", "The exit code is 0"} {
		if code != ExitOK || !strings.Contains(out, want) {
			t.Errorf("exit %d, help lacks %q:\n%s", code, want, out)
		}
	}
}

func TestCapturedRequestsAreRead(t *testing.T) {
	h := func(kv ...string) (out []outcome.Header) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, outcome.Header{Name: kv[i], Value: kv[i+1]})
		}
		return out
	}
	for _, c := range []struct {
		name, src string
		want      engine.Case
	}{
		{"no version, no body", "GET /a\nA: b", engine.Case{Request: engine.Request{Method: "GET", Path: "/a", Headers: h("a", "b")}}},
		{"empty lines before", "\n\r\nGET /a HTTP/1.1\r\n\r\n", engine.Case{Request: engine.Request{Method: "GET", Path: "/a"}}},
		{"absolute target", "POST http://me:x@H.example:8/a?b=c HTTP/1.1\nHost: other\n\n{}", engine.Case{Body: []byte("{}"),
			Request: engine.Request{Method: "POST", Host: "h.example:8", Path: "/a?b=c"}}},
		{"a body with empty lines and quotes of mail", "POST /a HTTP/1.1\n\nx\n\n> y\n", engine.Case{Body: []byte("x\n\n> y\n"), Request: engine.Request{Method: "POST", Path: "/a"}}},
		{"chunks", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n", engine.Case{Body: []byte(`{"a":1}`),
			Request: engine.Request{Method: "POST", Path: "/a", Headers: h("transfer-encoding", "chunked")}}},
		{"chunks that were taken off", "POST /a HTTP/1.1\nTransfer-Encoding: chunked\n\n{}", engine.Case{Body: []byte(`{}`),
			Request: engine.Request{Method: "POST", Path: "/a", Headers: h("transfer-encoding", "chunked")}}},
		{"headers of HTTP/2", ":path: /a\n:method: GET\n:scheme: https\n:authority: H:1\nx-a: b: c\nx-a:", engine.Case{
			Request: engine.Request{Method: "GET", Path: "/a", Host: "h:1", Headers: h("x-a", "b: c", "x-a", "")}}},
		{"curl", "* note\n\r> GET /a HTTP/2\n> GET /a HTTP/2\n> A: b\n>\n> GET /b HTTP/2\n", engine.Case{Request: engine.Request{Method: "GET", Path: "/a", Headers: h("a", "b")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseCapture([]byte(c.src))
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

func TestABrokenCaptureIsToldByLineAndWithoutItsText(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"empty", "", ":1: there is no request ("},
		{"no request line", "authorization: hush\n", ":1: not a request line ("},
		{"another version", "GET /a SPDY/3 hush\n", ":1: not a request line ("},
		{"target", "GET hush HTTP/1.1\n", ":1: the request's target is neither a path nor a URL ("},
		{"no colon", "GET /a HTTP/1.1\nBearer hush\n", ":2: the header has no colon ("},
		{"folded", "GET /a HTTP/1.1\na: b\n hush\n", ":3: a header over two lines ("},
		{"pseudo header", ":method: GET\n:hush: x\n", ":2: an unknown pseudo header ("},
		{"pseudo header without a value", ":method\n", ":1: a pseudo header without a value ("},
		{"no path", ":method: GET\n", ":1: no :method or no :path among the pseudo headers ("},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := explainOf(t, c.src, "--request", "-")
			if code != ExitUsage || out != "" || !strings.Contains(errs, "brownout: --request -"+c.want) || strings.Contains(errs, "hush") {
				t.Errorf("exit %d, out %q, err %q", code, out, errs)
			}
		})
	}
}

// FuzzCapture reads any bytes: what is read has a method, a path and headers as the engine wants them.
func FuzzCapture(f *testing.F) {
	f.Add([]byte("POST /a HTTP/1.1\r\nA: b\r\n\r\n{}"))
	f.Add([]byte("> GET /a HTTP/2\n> a: b\n> \n"))
	f.Add([]byte(":method: GET\n:path: /a\na:\n"))
	f.Add([]byte("GET http://me@h/a\nTransfer-Encoding: chunked\n\n1\na\n0\n\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := parseCapture(src)
		if err != nil {
			return
		}
		if c.Request.Method == "" || c.Request.Path == "" {
			t.Errorf("no method or path: %+v", c)
		}
		for _, h := range c.Request.Headers {
			if !isToken(h.Name) || h.Name != strings.ToLower(h.Name) || h.Name == "host" || strings.ContainsAny(h.Value, "\r\n") {
				t.Errorf("header %+v", h)
			}
		}
	})
}
