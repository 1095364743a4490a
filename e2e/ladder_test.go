package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// ladderPolicy has all kinds of rungs; full has one slot and no queue, so that a held request makes it busy.
const ladderPolicy = `version: 1
tiers:
  full:   {model: {concurrency: 1, queue: 0}}
  small:  {model: {concurrency: 1, queue: 0, rewrite: {model: llama-8b, headers: {x-model-pool: small}}}}
  cached: {cache: {stale_for: 1h}}
  canned: {template: {text: "We are at capacity."}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full, small, cached, canned]
  cache: {ttl: 60s}
  on: {empty: next}
`

// ask posts a chat request.
func (s *stack) chat(c *http.Client, text string, headers ...string) answer {
	return s.chatBody(c, question(text), headers...)
}

// question is a chat request.
func question(text string) string {
	return `{"model":"big","messages":[{"role":"user","content":"` + text + `"}]}`
}

func (s *stack) chatBody(c *http.Client, body string, headers ...string) answer {
	return s.postChat(s.t.Context(), c, body, headers...)
}

// postChat posts a body for a tenant who may leave.
func (s *stack) postChat(ctx context.Context, c *http.Client, body string, headers ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.envoy.URL(chatPath), strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("content-type", "application/json")
	req.Header.Set("authorization", "Bearer tenant-a")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return do(c, req)
}

// TestEachRungIsReachedByItsOwnCause: by whatever the upstream does, header and body say what the answer is, and those
// who accept nothing less get the error.
func TestEachRungIsReachedByItsOwnCause(t *testing.T) {
	for _, c := range []struct {
		mode   stub.Mode
		reason string
		never  int // the status for those who accept nothing less
	}{
		{stub.ModeThrottle, "upstream_throttled", 429},
		{stub.ModeError, "upstream_error", 500},
		{stub.ModeEvict, "preempted", 503},
		{stub.ModeSlow, "deadline", 504},
		{stub.ModeEmpty, "empty", 200},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			onEveryWire(t, stackOptions{policy: ladderPolicy}, func(t *testing.T, s *stack, client *http.Client) {
				mode := []string{"x-stub-mode", string(c.mode), "x-budget-ms", "400"}
				got := s.chat(client, "q", mode...)
				wantTemplate(t, got, c.reason)
				stream := s.chatBody(client, `{"model":"big","stream":true,"messages":[{"role":"user","content":"q"}]}`, mode...)
				if c.mode != stub.ModeEmpty && c.mode != stub.ModeEvict { // an empty stream is an answer; of an evicted one words have gone on
					wantTemplateStream(t, stream, c.reason)
				}
				never := s.chat(client, "q", append(mode, "x-degrade", "never")...)
				if never.status != c.never || never.header.Get("x-degraded") != "false" {
					t.Errorf("x-degrade: never: %s, want status %d", never, c.never)
				}
			})
		})
	}
}

func wantTemplate(t *testing.T, a answer, reason string) {
	t.Helper()
	want := `"meta":{"tier":"canned","degraded":true,"reason":"` + reason + `","deadline_ms":`
	if a.status != 200 || a.header.Get("x-tier") != "canned" || a.header.Get("x-degraded") != "true" || a.header.Get("x-degraded-reason") != reason ||
		a.header.Get("x-brownout-source") != "template" || !strings.Contains(a.body, want) || !strings.Contains(a.body, "We are at capacity.") {
		t.Errorf("%s, headers %v, want the template for %s", a, a.header, reason)
	}
}

func wantTemplateStream(t *testing.T, a answer, reason string) {
	t.Helper()
	want := `"tier":"canned","degraded":true,"reason":"` + reason + `","complete":true}`
	if a.status != 200 || a.header.Get("content-type") != "text/event-stream" || a.header.Get("x-brownout-source") != "template" ||
		!strings.Contains(a.body, want) || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("%s, headers %v, body %s, want a stream of the template for %s", a, a.header, a.body, reason)
	}
}

// TestQueuePressureWalksTheLadder: small, then the store, then the text, each labelled, and a free slot in the better tier
// is always taken.
func TestQueuePressureWalksTheLadder(t *testing.T) {
	u := startScripted(t)
	const chatAnswer = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`
	answers := script{header: map[string]string{"content-type": "application/json"}, chunks: []string{chatAnswer[:20], chatAnswer[20:]}}
	u.add("fast", answers)
	answers.gap = 700 * time.Millisecond
	u.add("slow", answers)
	onEveryWire(t, stackOptions{policy: ladderPolicy, upstreamAddr: u.Listener.Addr().String()}, func(t *testing.T, s *stack, c *http.Client) {
		if first := s.chat(c, "known", "x-script", "fast"); first.status != 200 || first.header.Get("x-tier") != "full" || first.header.Get("x-degraded") != "false" {
			t.Fatalf("%s", first)
		}
		full := s.backgroundChat(c, "one", "x-script", "slow")
		s.waitInflight("full", 1, 0)
		small := s.backgroundChat(c, "two", "x-script", "slow")
		s.waitInflight("small", 1, 0)
		wantTemplate(t, s.chat(c, "three"), "queue_pressure")
		never := s.chat(c, "four", "x-degrade", "never")
		if never.status != 503 || never.reason() != "queue_full" {
			t.Errorf("x-degrade: never: %s", never)
		}
		hit := s.chat(c, "known", "x-script", "none such")
		if hit.status != 200 || hit.header.Get("x-brownout-source") != "replay" || hit.header.Get("x-degraded") != "false" ||
			hit.header.Get("idempotent-replayed") != "true" || hit.body != chatAnswer {
			t.Errorf("a fresh answer: %s %v", hit, hit.header)
		}
		if a := <-small; a.status != 200 || a.header.Get("x-tier") != "small" || a.header.Get("x-degraded-reason") != "queue_pressure" ||
			!strings.Contains(a.body, `"meta":{"tier":"small","degraded":true,"reason":"queue_pressure"`) {
			t.Errorf("small: %s %v", a, a.header)
		}
		if a := <-full; a.header.Get("x-tier") != "full" {
			t.Errorf("full: %s", a)
		}
		if a := s.chat(c, "five", "x-script", "fast"); a.header.Get("x-tier") != "full" {
			t.Errorf("with a free slot: %s", a)
		}
	})
}

// backgroundChat asks in a goroutine.
func (s *stack) backgroundChat(c *http.Client, text string, headers ...string) <-chan answer {
	ch := make(chan answer, 1)
	go func() { ch <- s.chat(c, text, headers...) }()
	return ch
}
