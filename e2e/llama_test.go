package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

const llamaPolicy = `version: 1
budget: {default: 30s, max: 30s}
tiers:
  full: {model: {concurrency: 8, queue: 8}}
routes:
- name: all
  match: {path: {prefix: /}}
  ladder: [full]
`

// llamaLong is more tokens than the server writes in the time of a test, and as many as anthropic-python asks for without
// a stream.
const llamaLong = 20000

// llama is a real llama.cpp server whose model has random weights.
type llama struct {
	*testkit.Process
	url string
}

var llamaLine = regexp.MustCompile(`(?m)^listening on (http://127\.0\.0\.1:\d+)$`)

func startLlama(t *testing.T) *llama {
	t.Helper()
	root := testkit.RepoRoot(t)
	l := &llama{Process: testkit.StartProcess(t, getSDK(t, "llama"), filepath.Join(root, "e2e", "llama", "server.py"), filepath.Join(t.TempDir(), "random.gguf"))}
	l.url = l.WaitLog(llamaLine)[1]
	l.WaitReady(l.url + "/health")
	return l
}

// busy is how many answers the server is writing, with at least a few words each.
func (l *llama) busy(t *testing.T) (n int) {
	t.Helper()
	resp, err := http.Get(l.url + "/slots")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var slots []struct {
		Processing bool `json:"is_processing"`
		Next       []struct {
			Decoded int `json:"n_decoded"`
		} `json:"next_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&slots); err != nil {
		t.Fatal(err)
	}
	for _, s := range slots {
		if s.Processing && len(s.Next) == 1 && s.Next[0].Decoded > 20 {
			n++
		}
	}
	return n
}

// llamaRow is one way to ask the server.
type llamaRow struct {
	driver, name string
	stream       bool
	stop         string // the request's member for stop sequences
	whole        string // the finish reason of an answer that met one
	short        string // the finish reason of one that we ended
}

var llamaRows = []llamaRow{
	{"python", "openai-python chat create", true, "stop", "stop", "length"},
	{"python", "openai-python chat JSON", false, "stop", "stop", ""},
	{"python", "openai-python responses create", true, "stop", "completed", "incomplete max_output_tokens"},
	{"python", "openai-python responses JSON", false, "stop", "completed", ""},
	{"python", "anthropic-python create", true, "stop_sequences", "end_turn", "max_tokens"},
	{"python", "anthropic-python JSON", false, "stop_sequences", "end_turn", ""},
	{"go", "openai-go chat accumulator", true, "stop", "stop", "length"},
	{"go", "anthropic-go Accumulate", true, "stop_sequences", "end_turn", "max_tokens"},
}

// llamaCases asks on every row for an answer that does not end by itself, but for stop, which it meets soon.
func llamaCases(scenario, budget, stop string) map[string][]sdkCase {
	cases := map[string][]sdkCase{}
	for _, row := range llamaRows {
		c := sdkCase{Row: row.name, Scenario: scenario, Headers: map[string]string{"x-budget-ms": budget}, MaxTokens: llamaLong}
		if stop != "" {
			c.Extra = map[string]any{row.stop: []string{stop}}
		}
		cases[row.driver] = append(cases[row.driver], c)
	}
	return cases
}

// documents is how many rows ask for an answer that is not streamed.
func documents() (n int) {
	for _, row := range llamaRows {
		if !row.stream {
			n++
		}
	}
	return n
}

// TestLlama asks a real llama.cpp server through a real Envoy in three protocols, streamed and not, for whole answers and
// for answers that come too late.
func TestLlama(t *testing.T) {
	l := startLlama(t)
	s := startStack(t, stackOptions{policy: llamaPolicy, upstreamAddr: strings.TrimPrefix(l.url, "http://")})
	base, n := "http://"+s.envoy.Addr, len(llamaRows)

	seen := startDrivers(t, base, llamaCases("whole", "30000", "o"))()
	for _, row := range llamaRows {
		if got := seen[[2]string{row.name, "whole"}]; got.Error != "" || got.Finish != row.whole || strings.TrimSpace(got.Text) == "" {
			t.Errorf("%v: want words and the finish reason %q", got, row.whole)
		}
	}
	s.checkOutcomes(map[string]int{"ok": n})

	seen = startDrivers(t, base, llamaCases("deadline", "2500", ""))()
	for _, row := range llamaRows {
		row.checkEnded(t, seen[[2]string{row.name, "deadline"}], "504|GatewayTimeout")
	}
	s.checkOutcomes(map[string]int{"ok": n, "deadline": n})
	// The connections are closed; this server sees that while it streams, and writes a document to its end for nobody.
	testkit.Eventually(t, 5*time.Second, func() bool { return l.busy(t) <= documents() }, "the server goes on with streams nobody reads")
}

// TestLlamaKilled is TestLlama for answers that end because the server dies.
func TestLlamaKilled(t *testing.T) {
	l := startLlama(t)
	s := startStack(t, stackOptions{policy: llamaPolicy, upstreamAddr: strings.TrimPrefix(l.url, "http://")})
	wait := startDrivers(t, "http://"+s.envoy.Addr, llamaCases("killed", "30000", ""))
	testkit.Eventually(t, 25*time.Second, func() bool { return l.busy(t) == len(llamaRows) }, "the server never wrote all answers at once")
	l.Kill()
	seen := wait()
	for _, row := range llamaRows {
		row.checkEnded(t, seen[[2]string{row.name, "killed"}], "503|ServiceUnavailable")
	}
	// The server sends the headers of a document with its last byte: to Envoy, one that died had not begun to answer.
	s.checkOutcomes(map[string]int{"truncated": len(llamaRows) - documents(), "upstream_error": documents()})
}

// checkEnded holds what a client saw of an answer that was ended to the rules: a stream has words and ends short, and a
// document is an error of the API.
func (r llamaRow) checkEnded(t *testing.T, s sdkSeen, status string) {
	t.Helper()
	client, _, _ := strings.Cut(r.name, " ")
	switch {
	case r.stream && (s.Error != "" || s.Finish != r.short || strings.TrimSpace(s.Text) == ""):
		t.Errorf("%v: want words and the finish reason %q", s, r.short)
	case !r.stream && (s.Text != "" || !sdkErrors[client].MatchString(s.Error) || !regexp.MustCompile(status).MatchString(s.Error)):
		t.Errorf("%v: want an error of the API with %s", s, status)
	}
}

// checkOutcomes waits for quiet and compares all outcomes of brownout with want.
func (s *stack) checkOutcomes(want map[string]int) {
	s.t.Helper()
	_, counted := s.books()
	for outcome, n := range want {
		if got := s.metric("brownout_requests_total", "outcome", outcome); got != n {
			s.t.Errorf("outcome %s: %d, want %d (%v)", outcome, got, n, counted)
		}
	}
	if got, n := total(counted), total(want); got != n {
		s.t.Errorf("%d requests, want %d (%v)", got, n, counted)
	}
}

// TestLlamaFrames reads the bytes of the streams that we end, and the labels.
func TestLlamaFrames(t *testing.T) {
	l := startLlama(t)
	s := startStack(t, stackOptions{policy: llamaPolicy, upstreamAddr: strings.TrimPrefix(l.url, "http://")})
	messages := `{"model":"m","stream":true,"max_tokens":20000,"messages":[{"role":"user","content":"hi"}]}`
	const keys = `"tier":"full","degraded":true,"reason":"REASON","complete":false}`
	asks := []struct{ path, body, end string }{
		{"/v1/chat/completions", messages, `"finish_reason":"length"}],` + keys + "\n\ndata: [DONE]\n\n"},
		{"/v1/responses", `{"model":"m","stream":true,"max_output_tokens":20000,"input":"hi"}`, `"usage":null},` + keys + "\n\n"},
		{"/v1/messages", messages, "event: done\ndata: {\"type\":\"ping\"," + keys + "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
	}
	c := newClient(t, false)
	check := func(ask struct{ path, body, end string }, a answer, reason string) {
		t.Helper()
		end := strings.Replace(ask.end, "REASON", reason, 1)
		if a.status != 200 || a.err != nil || !strings.HasSuffix(a.body, end) || strings.Count(a.body, "event: done") != 1 {
			t.Errorf("%s, %s: status %d, %v, the last bytes are %q", ask.path, reason, a.status, a.err, a.body[max(0, len(a.body)-400):])
		}
		if h := a.header; h.Get("x-tier") != "full" || h.Get("x-degraded") != "false" || h.Get("x-brownout-source") != "upstream" {
			t.Errorf("%s: labels %v", ask.path, h)
		}
	}
	for _, ask := range asks {
		check(ask, s.ask(t.Context(), c, ask.path, ask.body, "x-budget-ms", "700"), "deadline")
	}
	pending := make([]chan answer, len(asks))
	for i, ask := range asks {
		pending[i] = make(chan answer, 1)
		go func() { pending[i] <- s.ask(t.Context(), c, ask.path, ask.body) }()
	}
	testkit.Eventually(t, 25*time.Second, func() bool { return l.busy(t) == len(asks) }, "the server never wrote all answers at once")
	l.Kill()
	for i, ask := range asks {
		check(ask, <-pending[i], "upstream_truncated")
	}
	s.checkOutcomes(map[string]int{"deadline": len(asks), "truncated": len(asks)})
}

// ask posts a JSON body with pairs of header names and values.
func (s *stack) ask(ctx context.Context, c *http.Client, path, body string, headers ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.envoy.URL(path), strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("content-type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return do(c, req)
}
