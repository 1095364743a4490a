package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// settingsPolicy has a route for each setting of a stream.
const settingsPolicy = `version: 1
budget: {default: 5s}
tiers:
  full: {model: {concurrency: 64, queue: 64}}
  busy: {model: {concurrency: 1, queue: 0}}
routes:
- {name: first, match: {path: {prefix: /first/}}, ladder: [full], stream: {seal: %[1]t, first_token: 300ms}}
- {name: longest, match: {path: {prefix: /longest/}}, ladder: [full], stream: {seal: %[1]t, max: 400ms}}
- {name: bare, match: {path: {prefix: /bare/}}, ladder: [full], stream: {seal: %[1]t, terminal: bare, idle: 300ms}}
- {name: error, match: {path: {prefix: /error/}}, ladder: [full], stream: {seal: %[1]t, terminal: error, idle: 300ms}}
- {name: busy, match: {path: {prefix: /busy/}}, ladder: [busy], stream: {seal: %[1]t}}
- {name: all, match: {path: {prefix: /}}, ladder: [full], stream: {seal: %[1]t}}
`

// onBothSettings runs a test on two pairs of protocols, sealed and unsealed.
func onBothSettings(t *testing.T, test func(t *testing.T, e *caseEnv, sealed bool)) {
	for _, w := range []wire{wires[0], wires[3]} {
		for _, sealed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s sealed=%t", w.name, sealed), func(t *testing.T) {
				u := startScripted(t)
				s := startStack(t, stackOptions{policy: fmt.Sprintf(settingsPolicy, sealed), scheme: w.upstream, upstreamAddr: address(u)})
				test(t, &caseEnv{wire: w, s: s, u: u, c: newClient(t, w.h2)}, sealed)
			})
		}
	}
}

// TestSettingsOfAStream: first_token and max end a stream at their time, and terminal chooses the form of the ending.
func TestSettingsOfAStream(t *testing.T) {
	onBothSettings(t, func(t *testing.T, e *caseEnv, _ bool) {
		slow := `{"error":{"message":"deadline: slow_first_token","type":"deadline","param":null,"code":"slow_first_token"},"reason":"slow_first_token"}`
		steady := script{chunks: pieces(strings.Repeat(CH("a"), 100), len(CH("a"))), gap: 20 * time.Millisecond}
		failed := func(reason string) string {
			return `data: {"error":{"message":"answer incomplete: ` + reason + `","type":"server_error","param":null,"code":"` + reason + `"}}` + "\n\n" + DONE
		}
		silent := script{chunks: []string{CH("a")}, end: hang}
		var wg sync.WaitGroup
		for name, c := range map[string]struct {
			route    string
			sc       script
			status   int
			out      string // the end of the body
			from, to time.Duration
		}{
			"no headers in time":        {"first", script{wait: 3 * time.Second}, 504, slow, 290 * time.Millisecond, 900 * time.Millisecond},
			"headers and silence":       {"first", script{end: hang}, 504, slow, 290 * time.Millisecond, 900 * time.Millisecond},
			"pings only":                {"first", script{chunks: []string{": ping\n\n", ": ping\n\n"}, gap: 100 * time.Millisecond, end: hang}, 200, ": ping\n\n" + fromNothing("slow_first_token"), 290 * time.Millisecond, 900 * time.Millisecond},
			"a role and silence":        {"first", script{chunks: []string{roleChunk}, end: hang}, 200, roleChunk + P("slow_first_token"), 290 * time.Millisecond, 900 * time.Millisecond},
			"content in time":           {"first", script{chunks: []string{CH("a"), FIN("stop") + DONE}, gap: 600 * time.Millisecond}, 200, CH("a") + FIN("stop") + DONE, 590 * time.Millisecond, 2 * time.Second},
			"longer than max":           {"longest", steady, 200, CH("a") + P("deadline"), 390 * time.Millisecond, 1200 * time.Millisecond},
			"shorter than max":          {"longest", script{chunks: []string{CH("a"), FIN("stop") + DONE}, gap: 100 * time.Millisecond}, 200, CH("a") + FIN("stop") + DONE, 0, time.Second},
			"silence before any event":  {"bare", script{end: hang}, 504, slow, 290 * time.Millisecond, 1200 * time.Millisecond},
			"bare, silent":              {"bare", silent, 200, CH("a") + seedFrame("stalled"), 290 * time.Millisecond, 1200 * time.Millisecond},
			"bare, without proof":       {"bare", script{chunks: []string{CH("a")}}, 200, CH("a") + seedFrame("upstream_truncated"), 0, time.Second},
			"an error, silent":          {"error", silent, 200, CH("a") + failed("stalled"), 290 * time.Millisecond, 1200 * time.Millisecond},
			"an error, without proof":   {"error", script{chunks: []string{CH("a")}}, 200, CH("a") + failed("upstream_truncated"), 0, time.Second},
			"an error, but it is whole": {"error", script{chunks: []string{CH("a") + FIN("stop") + DONE}}, 200, CH("a") + FIN("stop") + DONE, 0, time.Second},
		} {
			k, v := e.u.add(name, c.sc)
			wg.Go(func() {
				a := e.post(t, c.route, chatURL, "{}", k, v)
				if a.status != c.status || a.err != nil || !strings.HasSuffix(a.body, c.out) || a.took < c.from || a.took > c.to {
					t.Errorf("%s: %v, ends in %q, want %q", name, a, a.body[max(0, len(a.body)-300):], c.out)
				}
			})
		}
		wg.Wait()
		for reason, n := range map[string]int{"slow_first_token": 2, "deadline": 1, "stalled": 2, "upstream_truncated": 2} {
			if got := e.s.metric("brownout_terminal_frames_total", "reason", reason); got != n {
				t.Errorf("%d endings with %s, want %d", got, reason, n)
			}
		}
		e.outcomes(t, "bare", "stalled", [2]int{1, 0}, 2) // the third ended without proof
		e.s.books()
	})
}

// fromNothing is the ending of a chat stream of which nothing but comments has been seen.
func fromNothing(reason string) string {
	return "event: done\n" + `data: {"id":"brownout","object":"chat.completion.chunk","created":0,"model":"","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"length"}],` +
		mark(reason) + "}\n\n" + DONE
}

// TestErrorBodiesOfEveryDialect holds what we say in the upstream's place to the byte, through Envoy.
func TestErrorBodiesOfEveryDialect(t *testing.T) {
	plain := func(what, reason string) string { return `{"error":"` + what + `","reason":"` + reason + `"}` }
	openAI := func(what, reason string) string {
		return `{"error":{"message":"` + what + `: ` + reason + `","type":"` + what + `","param":null,"code":"` + reason + `"},"reason":"` + reason + `"}`
	}
	anthropic := func(what, reason string) string {
		return `{"type":"error","error":{"type":"overloaded_error","message":"` + what + `: ` + reason + `"},"reason":"` + reason + `"}`
	}
	onBothSettings(t, func(t *testing.T, e *caseEnv, sealed bool) {
		e.u.add("holder", script{chunks: []string{partial}, end: hang})
		if holder := e.open(t, "busy", genericPath, "x-script", "holder", "x-budget-ms", "8000"); holder != nil {
			defer holder.Body.Close()
		}
		e.u.add("silent", script{end: hang})
		e.u.add("cut", script{header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"a`}, end: cut})
		e.u.add("half", script{header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"a`}})
		var wg sync.WaitGroup
		for path, body := range map[string]func(what, reason string) string{
			genericPath: plain, chatURL: openAI, completionsURL: openAI, responsesURL: openAI, messagesURL: anthropic, geminiURL: plain, ollamaURL: plain,
			"/v1beta/models/m:generateContent": plain, "/api/generate": plain, "/openai/deployments/d/chat/completions": openAI,
		} {
			for _, c := range []struct {
				route, script, budget string
				status                int
				what, reason          string
			}{
				{"busy", "silent", "1000", 503, "capacity", "queue_full"}, {"first", "silent", "0", 503, "capacity", "deadline_expired"},
				{"all", "silent", "300", 504, "deadline", "deadline"}, {"first", "silent", "5000", 504, "deadline", "slow_first_token"},
				{"all", "half", "5000", 502, "upstream", "upstream_truncated"}, {"all", "cut", "5000", 502, "upstream", "upstream_truncated"},
			} {
				if c.script == "cut" && !sealed {
					continue // Envoy's own words
				}
				wg.Go(func() {
					a := e.post(t, c.route, path, "{}", "x-script", c.script, "x-budget-ms", c.budget)
					if want := body(c.what, c.reason); a.status != c.status || a.err != nil || a.body != want || a.header.Get("content-type") != "application/json" {
						t.Errorf("%s, %s of %s: %v, want %d and %s", path, c.reason, c.script, a, c.status, want)
					}
					if length := a.header.Get("content-length"); length != "" && length != fmt.Sprint(len(a.body)) {
						t.Errorf("%s, %s: content-length %s of %d bytes", path, c.reason, length, len(a.body))
					}
				})
			}
		}
		wg.Wait()
	})
}

// TestAnUnreachableUpstreamSealedOrNot: the seal changes neither what the caller sees nor how often Envoy tries.
func TestAnUnreachableUpstreamSealedOrNot(t *testing.T) {
	const requests = 4
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for name, upstream := range map[string]func(*testing.T) string{"nobody listens": func(t *testing.T) string { return testkit.FreeAddr(t) }, "closes the connection": closer} {
				var seen [2]answer
				for i, sealed := range []bool{true, false} {
					s := startStack(t, stackOptions{policy: fmt.Sprintf(settingsPolicy, sealed), scheme: w.upstream, upstreamAddr: upstream(t)})
					c := newClient(t, w.h2)
					for range requests {
						seen[i] = s.send(t.Context(), c, chatURL)
					}
					if n := s.envoy.Stats("cluster.tier_full.upstream_cx_total"); n != requests {
						t.Errorf("%s, sealed %t: %d connections tried for %d requests", name, sealed, n, requests)
					}
					if n := s.metric("brownout_upstream_total", "outcome", "upstream_error"); n != requests {
						t.Errorf("%s, sealed %t: %d of %d counted as the upstream's errors", name, sealed, n, requests)
					}
					for header := range seen[i].header {
						if h := strings.ToLower(header); strings.HasPrefix(h, "x-brownout-") && h != "x-brownout-source" {
							t.Errorf("%s, sealed %t: the caller got %s: %q", name, sealed, header, seen[i].header[header])
						}
					}
					s.checkBooks()
				}
				for i, a := range seen {
					if a.status != 503 || a.err != nil || a.reason() != "" || a.header.Get("x-brownout-source") != "envoy" || a.header.Get("x-tier") != "" || a.header.Get("x-degraded") != "false" {
						t.Errorf("%s, sealed %t: %v, header %v; want Envoy's own 503", name, i == 0, a, a.header)
					}
				}
				if a, b := labels(seen[0].header), labels(seen[1].header); a != b {
					t.Errorf("%s: sealed the labels are %s, unsealed %s", name, a, b)
				}
			}
		})
	}
}

// labels are what an answer says about itself.
func labels(h http.Header) string {
	var b strings.Builder
	for _, name := range []string{"x-brownout-source", "x-tier", "x-degraded", "x-degraded-reason", "retry-after", "retry-after-ms", "x-should-retry"} {
		fmt.Fprintf(&b, "%s=%q ", name, h.Values(name))
	}
	return b.String()
}

// TestAnAnswerWithoutAByte passes as it is and is empty, whether its headers or a body without anything in it are its end.
// One that was cut is a 502.
func TestAnAnswerWithoutAByte(t *testing.T) {
	onBothSettings(t, func(t *testing.T, e *caseEnv, sealed bool) {
		stream, document := map[string]string{"content-type": "text/event-stream"}, map[string]string{"content-type": "application/json"}
		none := func(kind map[string]string) map[string]string {
			return map[string]string{"content-type": kind["content-type"], "content-length": "0"}
		}
		for _, c := range []struct {
			name    string
			sc      script
			status  int
			outcome string
		}{
			{"a stream", script{header: stream}, 200, "empty"},
			{"a stream with trailers", script{header: stream, end: trailers}, 200, "empty"},
			{"a stream of length 0", script{header: none(stream)}, 200, "empty"},
			{"a stream of length 0 that ends later", script{header: none(stream), think: time.Millisecond}, 200, "empty"},
			{"a document", script{header: document}, 200, "empty"},
			{"a document of length 0", script{header: none(document)}, 200, "empty"},
			{"a stream that is cut", script{header: stream, end: cut}, 502, "truncated"},
		} {
			if c.status == 502 && !sealed {
				continue // Envoy's own word
			}
			for path, body := range map[string]string{genericPath: `{"error":"upstream","reason":"upstream_truncated"}`,
				chatURL: `{"error":{"message":"upstream: upstream_truncated","type":"upstream","param":null,"code":"upstream_truncated"},"reason":"upstream_truncated"}`} {
				if c.status == 200 {
					body = ""
				}
				before := e.counted("all", c.outcome)
				k, v := e.u.add(c.name, c.sc)
				if a := e.post(t, "all", path, "{}", k, v); a.status != c.status || a.body != body || a.err != nil {
					t.Errorf("%s on %s: %v, want %d and %q", c.name, path, a, c.status, body)
				}
				e.outcomes(t, "all", c.outcome, before, 1)
			}
		}
	})
}

// TestTrailersBehindOurEnding: the upstream's reach the caller behind it, ours do not.
func TestTrailersBehindOurEnding(t *testing.T) {
	onBothSettings(t, func(t *testing.T, e *caseEnv, sealed bool) {
		want := "yes"
		if !e.h2 { // Envoy drops trailers of HTTP/1.1 by default
			want = ""
		}
		for name, c := range map[string]struct {
			sc   script
			body string
		}{
			"without proof": {script{chunks: []string{CH("a")}, end: trailers}, CH("a") + P("upstream_truncated")},
			"half an event": {script{chunks: []string{CH("a"), "data: {"}, end: trailers}, CH("a") + P("upstream_truncated")},
			"an error":      {script{chunks: []string{CH("a") + guardrail}, end: trailers}, CH("a") + guardrail + DONE},
			"whole":         {script{chunks: []string{CH("a") + FIN("stop") + DONE}, end: trailers}, CH("a") + FIN("stop") + DONE},
		} {
			k, v := e.u.add(name, c.sc)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.s.envoy.URL("/all"+chatURL), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(k, v)
			a := doTrailed(e.c, req)
			if a.status != 200 || a.err != nil || a.body != c.body || a.trailer.Get("x-upstream-trailer") != want {
				t.Errorf("%s: %v, trailer %v, want %q with the trailer %q", name, a, a.trailer, c.body, want)
			}
		}
		if !sealed {
			return
		}
		k, v := e.u.add("cut", script{chunks: []string{CH("a")}, end: cut})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.s.envoy.URL("/all"+chatURL), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(k, v)
		if a := doTrailed(e.c, req); a.body != CH("a")+P("upstream_truncated") || a.err != nil || len(a.trailer) != 0 {
			t.Errorf("cut: %v, trailer %v, want none", a, a.trailer)
		}
	})
}
