package replay_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/internal/replay"
)

func TestEndToEnd(t *testing.T) {
	drop := `:status: 200
connection: close, X-Hop
keep-alive: a
x-hop: a
transfer-encoding: chunked
date: a
age: a
set-cookie: a
x-request-id: a
request-id: a
x-amzn-requestid: a
x-ratelimit-remaining-tokens: a
anthropic-ratelimit-requests-limit: a
ratelimit-policy: a
x-rate-limit-reset: a
retry-after: a
retry-after-ms: a
x-should-retry: a
content-length: a
alt-svc: a
server-timing: a
via: a
traceparent: a
x-b3-traceid: a
x-envoy-upstream-service-time: a
x-tier: a
x-degraded: a
x-degraded-reason: a
x-brownout-source: a
x-brownout-cut: a
idempotent-replayed: a`
	keep := `content-type: application/json
location: /jobs/1
content-encoding: gzip
link: a
link: b
x-custom: a
openai-model: a
etag: a
vary: accept`
	got := replay.EndToEnd(subject("", drop+"\n"+keep).Headers)
	if diff := cmp.Diff(subject("", keep).Headers, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnswerKept(t *testing.T) {
	const forever = time.Duration(1<<63 - 1)
	for headers, want := range map[string]time.Duration{ // 0: not kept
		"":                                               forever,
		"cache-control: no-store":                        0,
		"cache-control: Private":                         0,
		"cache-control: private=\"set-cookie\"":          0,
		"cache-control: no-cache":                        forever,
		"cache-control: max-age=5":                       5 * time.Second,
		"cache-control: max-age=\"5\"":                   5 * time.Second,
		"cache-control: max-age=5, s-maxage=7":           7 * time.Second,
		"cache-control: max-age=5, s-maxage=0":           0,
		"cache-control: max-age=0":                       0,
		"cache-control: max-age=x":                       0,
		"cache-control: max-age=-1":                      0,
		"cache-control: max-age=9223372036854775807":     forever,
		"cache-control: max-age=99999999999999999999":    0,
		"cache-control: public\ncache-control: no-store": 0,
		"vary: *":                           0,
		"vary: Accept, *":                   0,
		"vary: Accept-Encoding, Origin":     forever,
		"vary: authorization\nvary: x-part": forever,
		"vary: x-user":                      0,
	} {
		most, ok := replay.AnswerKept(subject("", headers).Headers, "x-part")
		if most != want || ok != (want > 0) {
			t.Errorf("%q: %v, %t; want %v", headers, most, ok, want)
		}
	}
}

func TestAnEntrysAge(t *testing.T) {
	e := replay.Entry{Stored: start(), TTL: time.Minute}
	for _, c := range []struct {
		after, age time.Duration
		fresh      bool
	}{{-time.Second, 0, true}, {0, 0, true}, {time.Minute - 1, time.Minute - 1, true}, {time.Minute, time.Minute, false}} {
		now := start().Add(c.after)
		if e.Age(now) != c.age || e.Fresh(now) != c.fresh {
			t.Errorf("after %v: age %v, fresh %t", c.after, e.Age(now), e.Fresh(now))
		}
	}
	if none := (&replay.Entry{Stored: start()}); none.Fresh(start()) {
		t.Error("an entry without time is fresh")
	}
}
