package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// plainRoutes watches everything and seals nothing; sealedRoutes is the default.
const (
	watchPolicy = `version: 1
budget: {default: 5s}
tiers:
  full: {model: {concurrency: 64, queue: 64}}
routes:
- name: all
  match: {path: {prefix: /}}
  ladder: [full]
  stream: {seal: %t, idle: 400ms, linger: 300ms}
`
	genericPath = "/v1/other"
	partial     = "data: {\"delta\":\"partial \"}\n\n"
)

// seedFrame is the seed's terminal frame.
func seedFrame(reason string) string {
	return "event: done\ndata: {\"tier\":\"full\",\"degraded\":true,\"reason\":\"" + reason + "\",\"complete\":false}\n\n"
}

// onEveryWireSealedOrNot runs a test on the four pairs of protocols, sealed and unsealed.
func onEveryWireSealedOrNot(t *testing.T, test func(t *testing.T, s *stack, u *scripted, c *http.Client, sealed bool)) {
	t.Helper()
	onEveryWireWatched(t, watchPolicy, test)
}

// onEveryWireWatched is onEveryWireSealedOrNot with a policy that says %t for the seal.
func onEveryWireWatched(t *testing.T, policy string, test func(t *testing.T, s *stack, u *scripted, c *http.Client, sealed bool)) {
	t.Helper()
	for _, sealed := range []bool{true, false} {
		for _, w := range wires {
			t.Run(fmt.Sprintf("%s sealed=%t", w.name, sealed), func(t *testing.T) {
				u := startScripted(t)
				s := startStack(t, stackOptions{policy: fmt.Sprintf(policy, sealed), scheme: w.upstream,
					upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
				test(t, s, u, newClient(t, w.h2), sealed)
				s.checkBooksWithAborts()
			})
		}
	}
}

func TestEndingsOfAStreamOfUnknownDialect(t *testing.T) {
	onEveryWireSealedOrNot(t, func(t *testing.T, s *stack, u *scripted, c *http.Client, sealed bool) {
		repaired := partial + seedFrame("upstream_truncated")
		for _, e := range []ending{cut, short, destroy} {
			k, v := u.add("generic "+e.String(), script{chunks: []string{partial}, end: e, rest: 200 * time.Millisecond})
			a := s.send(t.Context(), c, genericPath, k, v)
			switch {
			case sealed && (a.status != 200 || a.err != nil || a.body != repaired):
				t.Errorf("%s: %v, want the partial answer and the seed's frame", e, a)
			case !sealed && !showsCut(a):
				t.Errorf("%s: %v, want a cut that shows", e, a)
			}
		}
		// What remains impossible without the seal is counted, and nothing is counted on the other side.
		testkit.Eventually(t, 5*time.Second, func() bool { return s.metric("brownout_requests_total", "outcome", "truncated") == 3 }, "not three truncated")
		for _, mended := range []bool{true, false} {
			want := map[bool]int{sealed: 3}[mended]
			if n := s.metric("brownout_cuts_total", "sealed", fmt.Sprint(mended)); n != want {
				t.Errorf("brownout_cuts_total{sealed=%t} is %d, want %d", mended, n, want)
			}
		}
		for name, sc := range map[string]script{
			"no evidence": {chunks: []string{partial}}, "trailers": {chunks: []string{partial}, end: trailers},
			"half an event": {chunks: []string{partial, `data: {"cho`}},
		} {
			k, v := u.add(name, sc)
			if a := s.send(t.Context(), c, genericPath, k, v); a.status != 200 || a.err != nil || a.body != repaired {
				t.Errorf("%s: %v, want the seed's frame", name, a)
			}
		}
	})
}

func TestTimersOfAStream(t *testing.T) {
	onEveryWireSealedOrNot(t, func(t *testing.T, s *stack, u *scripted, c *http.Client, sealed bool) {
		k, v := u.add("silence after frames", script{chunks: []string{partial, partial}, end: hang})
		a := s.send(t.Context(), c, genericPath, k, v)
		if a.status != 200 || a.err != nil || a.body != partial+partial+seedFrame("stalled") {
			t.Errorf("silence after frames: %v", a)
		}
		k, v = u.add("silence after headers", script{end: hang})
		a = s.send(t.Context(), c, genericPath, k, v, "x-budget-ms", "300")
		if a.status != 504 || a.reason() != "deadline" || a.took > time.Second {
			t.Errorf("silence after headers: %v, want 504", a)
		}
		k, v = u.add("deadline", script{chunks: slices100(partial), gap: 20 * time.Millisecond})
		a = s.send(t.Context(), c, genericPath, k, v, "x-budget-ms", "300")
		if a.status != 200 || a.err != nil || !strings.HasSuffix(a.body, partial+seedFrame("deadline")) || a.took > time.Second {
			t.Errorf("deadline in mid-stream: %v", a)
		}
		k, v = u.add("complete but open", script{chunks: []string{partial, "data: [DONE]\n\n"}, end: hang})
		a = s.send(t.Context(), c, genericPath, k, v)
		if a.status != 200 || a.err != nil || strings.TrimRight(a.body, "\n") != partial+"data: [DONE]" || a.took > 2*time.Second {
			t.Errorf("complete but open: %v", a)
		}
		for _, name := range []string{"silence after frames", "silence after headers", "deadline", "complete but open"} {
			testkit.Eventually(t, 2*time.Second, func() bool { return u.count(u.cancelled, name) == 1 }, name+": the upstream was not cancelled")
		}
	})
}

func slices100(s string) []string {
	out := make([]string, 100)
	for i := range out {
		out[i] = s
	}
	return out
}

// showsCut says whether an answer is no clean end: it broke off, or, when its upstream died before anything had gone on,
// it is an error.
func showsCut(a answer) bool {
	return (a.err != nil || a.status >= 500) && !strings.Contains(a.body, "event: done")
}

// unframed is an event larger than what is held of one, without its end.
var unframed = "data: " + strings.Repeat("x", 3<<20)

func TestWhatCannotBeEndedHonestlyIsNotEndedCleanly(t *testing.T) {
	onEveryWireWatched(t, strings.Replace(watchPolicy, "idle: 400ms", "idle: 5s", 1), func(t *testing.T, s *stack, u *scripted, c *http.Client, sealed bool) {
		stream := map[string]string{"content-type": "text/event-stream"}
		var all sync.WaitGroup
		var cuts atomic.Int64
		for name, sc := range map[string]script{
			"opaque":                 {header: map[string]string{"content-type": "application/octet-stream"}, chunks: []string{partial}},
			"compressed":             {header: map[string]string{"content-type": "text/event-stream", "content-encoding": "gzip"}, chunks: []string{zipped(t, partial)}},
			"compressed JSON":        {header: map[string]string{"content-type": "application/json", "content-encoding": "gzip"}, chunks: []string{zipped(t, `{"choices":[`)}},
			"unframed":               {header: stream, chunks: []string{unframed}},
			"unframed behind frames": {header: stream, chunks: []string{partial, unframed}},
			"large JSON":             {header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"choices":["` + unframed}},
		} {
			for _, e := range []ending{cut, short, destroy, hang} {
				if e == destroy && len(sc.chunks[len(sc.chunks)-1]) > 1<<20 {
					continue // RST may overtake what is on its way: then the event was small
				}
				sc.end, sc.rest = e, 300*time.Millisecond
				k, v := u.add(name+e.String(), sc)
				all.Go(func() { // an HTTP/1.1 client is let go after Envoy's delayed close of 1 s
					if a := s.send(t.Context(), c, genericPath, k, v, "x-budget-ms", "700"); !showsCut(a) || a.took > 4*time.Second {
						t.Errorf("%s, %s: %v, want a cut that shows", name, e, a)
					} else if a.err != nil {
						cuts.Add(1)
					}
				})
			}
		}
		all.Wait()
		if cuts.Load() < 12 {
			t.Errorf("only %d of the answers broke off", cuts.Load())
		}
		k, v := u.add("json", script{header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"choices":[`}, end: cut})
		a := s.send(t.Context(), c, genericPath, k, v)
		if (a.status != 502 && a.status != 503) || (sealed && a.reason() != "upstream_truncated") {
			t.Errorf("JSON cut: %v, want our 502, or Envoy's own answer", a)
		}
		if n := s.metric("brownout_terminal_frames_total"); n != 0 {
			t.Errorf("%d endings of ours were counted", n)
		}
	})
}

// TestTheSealOfAnotherProcessMendsNothing: Envoy's sealed way leads to a brownout that knows nothing of the requests its
// neighbour admitted. A cut stays a cut; what is whole, late or silent ends as it should.
func TestTheSealOfAnotherProcessMendsNothing(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			u := startScripted(t)
			s := startStack(t, stackOptions{policy: fmt.Sprintf(watchPolicy, true), scheme: w.upstream, upstreamAddr: address(u), foreignSeal: true})
			c := newClient(t, w.h2)
			for _, e := range []ending{cut, short, destroy} {
				for name, sc := range map[string]script{"events": {chunks: []string{partial}, end: e}, "lines": {header: map[string]string{"content-type": "application/x-ndjson"}, chunks: []string{"{}\n"}, end: e}} {
					k, v := u.add(name+e.String(), sc)
					if a := s.send(t.Context(), c, genericPath, k, v); !showsCut(a) {
						t.Errorf("%s, %s: %v, want a cut that shows", name, e, a)
					}
				}
				k, v := u.add("json"+e.String(), script{header: map[string]string{"content-type": "application/json"}, chunks: []string{`{"choices":[`}, end: e})
				if a := s.send(t.Context(), c, chatURL, k, v); a.err == nil && a.status < 500 {
					t.Errorf("JSON, %s: %v, want a cut that shows, or an error", e, a)
				}
			}
			for name, sc := range map[string]struct {
				script
				want string
			}{
				"whole":    {script{chunks: []string{partial, "data: [DONE]\n\n"}}, partial + "data: [DONE]\n\n"},
				"silent":   {script{chunks: []string{partial}, end: hang}, partial + seedFrame("stalled")},
				"no proof": {script{chunks: []string{partial}}, partial + seedFrame("upstream_truncated")},
			} {
				k, v := u.add(name, sc.script)
				if a := s.send(t.Context(), c, genericPath, k, v); a.status != 200 || a.err != nil || a.body != sc.want {
					t.Errorf("%s: %v", name, a)
				}
			}
			testkit.Eventually(t, 10*time.Second, func() bool { return u.count(u.cancelled, "silent") == 1 }, "the silent upstream was not cancelled")
			if n := s.metric("brownout_terminal_frames_total"); n != 2 {
				t.Errorf("%d endings of ours are counted, want 2", n)
			}
			s.books() // such cuts are counted as the caller's, for a seal of ours would have told
		})
	}
}

func TestAWholeAnswerPassesByteForByte(t *testing.T) {
	onEveryWireSealedOrNot(t, func(t *testing.T, s *stack, u *scripted, c *http.Client, sealed bool) {
		whole := partial + ": ping\n\n" + "data: 日本語🙂\r\n\r\n" + "data: [DONE]\n\n"
		for name, chunks := range map[string][]string{"at once": {whole}, "byte by byte": pieces(whole, 1), "one by one": strings.SplitAfter(whole, "\n\n")} {
			k, v := u.add(name, script{chunks: chunks})
			if a := s.send(t.Context(), c, genericPath, k, v); a.status != 200 || a.err != nil || a.body != whole {
				t.Errorf("%s: %v", name, a)
			}
		}
		for _, d := range []sdkDialect{sdkChat, sdkCompletions, sdkResponses, sdkAnthropic, sdkGemini, sdkOllama} {
			events := d.streamScript("normal").chunks
			whole := strings.Join(events, "")
			before := s.metric("brownout_requests_total", "outcome", "ok")
			for name, chunks := range map[string][]string{"at once": {whole}, "byte by byte": pieces(whole, 1), "event by event": events, "across events": pieces(whole, 97)} {
				k, v := u.add(d.name+name, script{header: map[string]string{"content-type": d.contentType()}, chunks: chunks})
				if a := s.send(t.Context(), c, d.path(), k, v); a.status != 200 || a.err != nil || a.body != whole {
					t.Errorf("%s, %s: %v", d.name, name, a)
				}
			}
			testkit.Eventually(t, 5*time.Second, func() bool { return s.metric("brownout_requests_total", "outcome", "ok") == before+4 }, d.name+": not four that ended well")
		}
		big := strings.Repeat("x", 3<<20)
		for name, h := range map[string]string{"big json": "application/json", "big opaque": "application/octet-stream", "big event": "text/event-stream"} {
			body := big
			if name == "big event" {
				body = "data: " + big + "\n\ndata: [DONE]\n\n"
			}
			k, v := u.add(name, script{header: map[string]string{"content-type": h}, chunks: []string{body}})
			if a := s.send(t.Context(), c, genericPath, k, v); a.status != 200 || a.err != nil || a.body != body {
				t.Errorf("%s: %d of %d bytes, %v", name, len(a.body), len(body), a.err)
			}
		}
	})
}
