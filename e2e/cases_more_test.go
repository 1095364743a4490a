package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// scriptedStack is a stack in front of a scripted upstream.
func scriptedStack(t *testing.T, policy string, w wire) (*stack, *scripted, *http.Client) {
	t.Helper()
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: policy, scheme: w.upstream, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
	return s, u, newClient(t, w.h2)
}

// TestCaseC15: a service that sends no proof of completion may be believed at its end, by policy.
func TestCaseC15(t *testing.T) {
	s, u, c := scriptedStack(t, `version: 1
tiers: {full: {model: {concurrency: 4, queue: 8}}}
routes:
- {name: believed, match: {path: {prefix: /believed}}, ladder: [full], stream: {evidence: eof, dialect: openai_responses}}
- {name: judged, match: {path: {prefix: /v1/responses}}, ladder: [full]}
`, wires[0])
	in := "event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","status":"in_progress","output":[]}}` + "\n\n" +
		"event: response.output_text.done\n" + `data: {"type":"response.output_text.done","sequence_number":1,"text":"whole"}` + "\n\n"
	k, v := u.add("no proof", script{chunks: []string{in}})
	if a := s.send(t.Context(), c, "/believed", k, v); a.status != 200 || a.body != in {
		t.Errorf("evidence: eof: %v", a)
	}
	if a := s.send(t.Context(), c, responsesURL, k, v); a.status != 200 || !strings.Contains(a.body, `"reason":"upstream_truncated"`) {
		t.Errorf("by the dialect's rule: %v", a)
	}
	s.checkBooks()
}

// TestCaseC45: ten megabytes of CRLF frames pass frame by frame; less than a frame is held.
func TestCaseC45(t *testing.T) {
	s, u, c := scriptedStack(t, fmt.Sprintf(watchPolicy, true), wires[0])
	frame := strings.ReplaceAll(CH(strings.Repeat("x", 800)), "\n", "\r\n")
	frames := make([]string, (10<<20)/len(frame))
	for i := range frames {
		frames[i] = frame
	}
	whole := strings.Join(frames, "") + FIN("stop") + DONE
	k, v := u.add("crlf", script{chunks: append(frames, FIN("stop"), DONE)})
	done := s.background(c, chatURL, k, v)
	held := 0
	for {
		select {
		case a := <-done:
			if a.status != 200 || a.body != whole {
				t.Errorf("%d of %d bytes, %v", len(a.body), len(whole), a.err)
			}
			if held >= len(frame) {
				t.Errorf("%d bytes were held, a frame has %d", held, len(frame))
			}
			return
		default:
			held = max(held, s.metric("brownout_held_bytes"))
		}
	}
}

// TestCaseC50: an event of 40 MB passes without being buffered, and where it is cut nothing is put behind it.
func TestCaseC50(t *testing.T) {
	s, u, c := scriptedStack(t, fmt.Sprintf(watchPolicy, true), wires[3])
	huge := "data: " + strings.Repeat("x", 40<<20)
	k, v := u.add("whole", script{chunks: []string{huge + "\n\n", "data: [DONE]\n\n"}})
	if a := s.send(t.Context(), c, genericPath, k, v); a.status != 200 || len(a.body) != len(huge)+len("\n\ndata: [DONE]\n\n") || a.err != nil {
		t.Errorf("%d bytes, %v", len(a.body), a.err)
	}
	k, v = u.add("cut", script{chunks: []string{partial, huge}, end: cut})
	if a := s.send(t.Context(), c, genericPath, k, v); a.err == nil || strings.Contains(a.body, "event: done") {
		t.Errorf("cut inside: %d bytes, %v, want a cut that shows", len(a.body), a.err)
	}
	if n := s.metric("brownout_held_bytes"); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestCaseC52 (and C54): compressed answers are asked for by nobody, and pass untouched if they come.
func TestCaseC52(t *testing.T) {
	for _, w := range []wire{wires[0], wires[3]} {
		s, u, c := scriptedStack(t, fmt.Sprintf(watchPolicy, true), w)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		fmt.Fprint(z, CH("a")+FIN("stop")+DONE)
		z.Close()
		for name, sc := range map[string]script{
			"json": {header: map[string]string{"content-type": "application/json"}}, "sse": {header: map[string]string{"content-type": "text/event-stream"}},
			"json 503": {status: 503, header: map[string]string{"content-type": "application/json"}},
		} {
			sc.header["content-encoding"], sc.chunks = "gzip", []string{packed.String()}
			k, v := u.add(name, sc)
			a := s.send(t.Context(), c, chatURL, k, v, "accept-encoding", "gzip, br")
			if a.body != packed.String() || a.header.Get("content-encoding") != "gzip" || a.err != nil {
				t.Errorf("%s over %s: %v", name, w.name, a)
			}
			u.mu.Lock()
			if got := u.seen[name].Get("accept-encoding"); got != "" {
				t.Errorf("%s: the upstream was asked for %q", name, got)
			}
			u.mu.Unlock()
		}
	}
}

// TestCaseC55: headers wait for the first event, unless the policy says not to; then a late start can no longer be a
// status. Envoy 1.39 keeps the headers of a duplex body until its first piece, whatever the plugin says.
func TestCaseC55(t *testing.T) {
	s, u, c := scriptedStack(t, `version: 1
tiers: {full: {model: {concurrency: 4, queue: 8}}}
routes:
- {name: at-once, match: {path: {prefix: /at-once}}, ladder: [full], stream: {hold_headers: none}}
- {name: held, match: {path: {prefix: /}}, ladder: [full]}
`, wires[3])
	k, v := u.add("late", script{chunks: []string{"", partial, "data: [DONE]\n\n"}, gap: 400 * time.Millisecond})
	only139 := testkit.EnvoyBefore(t, 1, 40) && !testkit.EnvoyBefore(t, 1, 39)
	for path, want := range map[string]bool{"/held": true, "/at-once": only139} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.envoy.URL(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(k, v)
		began := time.Now()
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if held := time.Since(began) >= 400*time.Millisecond; held != want {
			t.Errorf("%s: headers after %s", path, time.Since(began))
		}
	}
}

// TestCaseC58: answers without a body get none.
func TestCaseC58(t *testing.T) {
	for _, w := range wires {
		s, u, c := scriptedStack(t, fmt.Sprintf(watchPolicy, true), w)
		for _, status := range []int{204, 304} {
			k, v := u.add(fmt.Sprint(status), script{status: status})
			if a := s.send(t.Context(), c, genericPath, k, v); a.status != status || a.body != "" || a.err != nil {
				t.Errorf("%s: %d: %v", w.name, status, a)
			}
		}
		k, v := u.add("head", script{})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, s.envoy.URL(genericPath), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(k, v)
		if a := do(c, req); a.status != 200 || a.body != "" || a.err != nil {
			t.Errorf("%s: HEAD: %v", w.name, a)
		}
		s.checkBooks()
	}
}

// TestCaseC70: steady tokens without a stated budget are never cut by us, however long they take.
func TestCaseC70(t *testing.T) {
	s, u, c := scriptedStack(t, `version: 1
budget: {default: 300ms}
tiers: {full: {model: {concurrency: 4, queue: 8}}}
routes: [{name: all, match: {path: {prefix: /}}, ladder: [full], stream: {idle: 300ms}}]
`, wires[3])
	chunks := append(slices100(partial)[:20], "data: [DONE]\n\n")
	k, v := u.add("steady", script{chunks: chunks, gap: 100 * time.Millisecond})
	if a := s.send(t.Context(), c, genericPath, k, v); a.status != 200 || a.body != strings.Join(chunks, "") || a.took < 2*time.Second {
		t.Errorf("got %v", a)
	}
}
