package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/limit"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

const explainable = `
version: 1
tiers:
  full:   {model: {concurrency: 1, queue: 2}}
  small:  {model: {concurrency: 1, queue: 0, rewrite: {model: llama-8b, path: /small, headers: {x-pool: small, x-token: hush}}}}
  cached: {cache: {stale_for: 1h}}
  canned: {template: {text: "Busy."}}
routes:
- name: plain
  match: {method: POST, path: {prefix: /plain}}
  ladder: [full, small]
- name: batch
  match: {method: GET, path: {prefix: /v1}}
  ladder: [full]
- name: chat
  match: {method: POST, path: {prefix: /v1/chat}}
  ladder: [full, {small: {wait_over: 250ms}}, cached, canned]
  cache: {ttl: 60s, schema: v3, ignore: [user, seed], partition: [x-team, x-region]}
  idempotency: {}
  retry: {retries: 1}
`

// explain explains a request of the chat route.
func explain(t testing.TB, body string, tiers []TierState, headers ...string) Explanation {
	t.Helper()
	r := request(headers...)
	r.Host = "api.example"
	return Explain(epoch, compile(t, explainable), Case{Request: r, Body: []byte(body), State: State{Tiers: tiers}})
}

const hello = `{"model":"m","user":"me","messages":[{"role":"user","content":"hello"}]}`

func TestExplainSaysWhyEarlierRoutesDoNotMatch(t *testing.T) {
	x := explain(t, hello, nil)
	want := []PassedRoute{{"plain", true, false}, {"batch", false, true}}
	if diff := cmp.Diff(want, x.Passed); diff != "" || x.Route != "chat" || !x.Matched {
		t.Errorf("route %q, passed (-want +got)\n%s", x.Route, diff)
	}
	r := Request{Method: "PUT", Path: "/v1/chat"}
	x = Explain(epoch, compile(t, explainable), Case{Request: r})
	if x.Matched || len(x.Passed) != 3 || x.Now != nil || x.Budget != nil {
		t.Errorf("an unmatched request: %+v", x)
	}
}

func TestExplainSaysWhereABudgetComesFrom(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		from    string
		value   time.Duration
		covers  string
		stated  int
	}{
		{"nothing stated", nil, "default", 2500 * ms, "first_content", 0},
		{"the budget header", []string{"x-budget-ms", "800"}, "x-budget-ms", 800 * ms, "whole", 1},
		{"the smallest of a list", []string{"x-budget-ms", "800, 300"}, "x-budget-ms", 300 * ms, "whole", 1},
		{"above the most", []string{"x-budget-ms", "99000"}, "max", 10 * time.Second, "whole", 1},
		{"more than a duration holds", []string{"x-budget-ms", "9223372036854775807"}, "max", 10 * time.Second, "whole", 1},
		{"as long as the default", []string{"x-budget-ms", "2500"}, "x-budget-ms", 2500 * ms, "whole", 1},
		{"a tighter one in front", []string{"x-budget-ms", "800", "x-deadline-remaining-ms", "500", "x-deadline-covers", "first_content"},
			"x-deadline-remaining-ms", 500 * ms, "first_content", 2},
		{"a gRPC timeout", []string{"x-budget-ms", "800", "grpc-timeout", "1S"}, "x-budget-ms", 800 * ms, "whole", 2},
		{"an Envoy in front, less the margin", []string{"x-envoy-expected-rq-timeout-ms", "1000"}, "x-envoy-expected-rq-timeout-ms", 750 * ms, "whole", 1},
		{"an Envoy in front that waits longer", []string{"x-envoy-expected-rq-timeout-ms", "60000"}, "default", 2500 * ms, "first_content", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := explain(t, hello, nil, c.headers...).Budget
			if b.From != c.from || time.Duration(b.Value) != c.value || b.Covers != c.covers || len(b.Stated) != c.stated {
				t.Errorf("got %+v, want %v", b, c)
			}
			if b.KillAt != b.Value-b.Reserve {
				t.Errorf("killAt %v is not %v less %v", b.KillAt, b.Value, b.Reserve)
			}
		})
	}
}

func TestExplainSaysWhyHeadersAreIgnored(t *testing.T) {
	x := explain(t, hello, nil, "x-budget-ms", "900", "x-budget-ms", "500ms", "grpc-timeout", "5", "x-priority", "urgent", "x-degrade", "small",
		"x-degrade", "canned", "x-max-queue-ms", "-1", "x-degrade", "huge")
	want := []IgnoredHeader{
		{"x-budget-ms", "500ms", whyNoMillis}, {"grpc-timeout", "5", whyNoTimeout}, {"x-priority", "urgent", whyNoPriority},
		{"x-degrade", "canned", whyOtherBefore}, {"x-max-queue-ms", "-1", whyNegative}, {"x-degrade", "huge", whyNoTier},
	}
	if diff := cmp.Diff(want, x.Ignored); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	internal := compile(t, strings.Replace(explainable, "version: 1", "version: 1\npriority: {trust: internal}", 1))
	got := Explain(epoch, internal, Case{Request: request("x-priority", "high")}).Ignored
	if diff := cmp.Diff([]IgnoredHeader{{"x-priority", "high", whyUntrusted}}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestExplainSaysWhatIsNotKept(t *testing.T) {
	for _, c := range []struct {
		name, body string
		headers    []string
		want       []string
	}{
		{"all is well", hello, []string{"authorization", "a"}, []string{}},
		{"nobody asks", hello, nil, []string{"anonymous"}},
		{"no-store", hello, []string{"authorization", "a", "cache-control", "no-store"}, []string{"no_store"}},
		{"temperature", `{"temperature":0.7}`, []string{"authorization", "a"}, []string{"temperature"}},
		{"stored at the server, and nobody asks", `{"store":true}`, nil, []string{"store", "anonymous"}},
		{"no body", "", []string{"authorization", "a"}, []string{"body"}},
		{"no JSON", "hello", []string{"authorization", "a"}, []string{"body"}},
		{"a member twice", `{"a":1,"a":2}`, []string{"authorization", "a"}, []string{"body"}},
		{"a member twice inside", `{"a":{"b":1,"b":2}}`, []string{"authorization", "a"}, []string{"body"}},
		{"encoded", hello, []string{"authorization", "a", "content-encoding", "gzip"}, []string{"body"}},
		{"multipart", hello, []string{"authorization", "a", "content-type", "multipart/form-data; boundary=x"}, []string{"multipart"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := explain(t, c.body, nil, c.headers...)
			if diff := cmp.Diff(c.want, x.Cache.Why); diff != "" || x.Cache.Kept != (len(c.want) == 0) {
				t.Errorf("kept %v (-want +got)\n%s", x.Cache.Kept, diff)
			}
			if does := x.Ladder[2].Does; (does == DoesLookUp) != x.Cache.Kept {
				t.Errorf("the cache tier %s", does)
			}
		})
	}
}

func TestExplainNamesThePartsOfTheKey(t *testing.T) {
	r := request("authorization", "a", "cookie", "c", "x-team", "t", "accept", "application/json", "content-type", "application/json",
		"user-agent", "u", "openai-project", "p", "cache-control", "no-cache")
	r.Path = "/v1/chat/completions?Key=k&alt=x"
	c := Explain(epoch, compile(t, explainable), Case{Request: r, Body: []byte(hello)}).Cache
	want := &CacheWhy{Kept: true, Why: []string{}, Bypass: true, Tenant: []string{"authorization", "cookie", "?Key"}, Partition: []string{"x-team"},
		Absent: []string{"x-region"}, Headers: []string{"accept", "content-type", "openai-project"}, Schema: "v3", Normalize: "whitespace",
		Ignored: []string{"user"}, Fresh: Millis(time.Minute), StaleFor: Millis(time.Hour)}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestExplainReadsIdempotencyKeys(t *testing.T) {
	for _, c := range []struct{ name, lines, state, why string }{
		{"absent", "", "absent", ""},
		{"valid", "abc", "valid", ""},
		{"quoted", `"a, b"`, "valid", ""},
		{"twice", "a|b", "malformed", "2 times"},
		{"empty", `""`, "malformed", "empty"},
		{"comma", "a,b", "malformed", "comma"},
		{"quote inside", `a"b`, "malformed", "quote inside"},
		{"no ASCII", "ä", "malformed", "ASCII"},
		{"long", strings.Repeat("k", 256), "malformed", "255"},
		{"unclosed", `"abc`, "malformed", "quoted string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			for _, line := range strings.Split(c.lines, "|") {
				if c.lines != "" {
					headers = append(headers, "idempotency-key", line)
				}
			}
			x := explain(t, hello, nil, headers...)
			if got := x.Idempotency; got.State != c.state || !strings.Contains(got.Why, c.why) || (got.Why == "") != (c.why == "") {
				t.Errorf("got %+v", got)
			}
			if want := c.state == "malformed"; (x.Now.Kind == "answered" && x.Now.Status == 400) != want {
				t.Errorf("now: %+v", x.Now)
			}
		})
	}
}

// busy is a tier with so many slots held and requests waiting, and so long a service.
func busy(tier string, limitOf, used, queue, waiting int, service time.Duration) TierState {
	t := TierState{Tier: tier, InPolicy: true, Stats: limit.Stats{Limit: limitOf, Used: used, Queue: queue, Waiting: waiting}}
	if service > 0 {
		t.Samples = limit.Samples{Service: service, ServiceCount: 5}
	}
	return t
}

func TestExplainSaysWhatEachTierWouldDo(t *testing.T) {
	does := func(x Explanation) (out []string) {
		for _, r := range x.Ladder {
			out = append(out, strings.TrimSpace(string(r.Does)+" "+r.Why))
		}
		return out
	}
	full := busy("full", 1, 1, 2, 1, 0)
	slow := busy("full", 1, 1, 2, 1, 400*ms)
	for _, c := range []struct {
		name    string
		tiers   []TierState
		headers []string
		does    []string
		now     DecisionWhy
	}{
		{"idle", nil, nil, []string{"slot_at_once", "slot_at_once", "nothing no_key", "answers"}, DecisionWhy{Kind: "admitted", Tier: "full", Fallback: true}},
		{"a slot is held and nobody knows for how long", []TierState{full}, nil, []string{"waits", "slot_at_once", "nothing no_key", "answers"},
			DecisionWhy{Kind: "waits", Tier: "full", UpTo: Millis(250 * ms)}},
		{"the wait is too long", []TierState{slow}, nil, []string{"refuses queue_full", "slot_at_once", "nothing no_key", "answers"},
			DecisionWhy{Kind: "admitted", Tier: "small", Reason: "queue_pressure", Fallback: true}},
		{"never less", []TierState{slow}, []string{"x-degrade", "never"},
			[]string{"waits", "not_accepted x-degrade", "not_accepted x-degrade", "not_accepted x-degrade"}, DecisionWhy{Kind: "waits", Tier: "full", UpTo: Millis(2450 * ms)}},
		{"all is full", []TierState{busy("full", 1, 1, 2, 2, 0), busy("small", 1, 1, 0, 0, 0)}, nil,
			[]string{"refuses queue_full", "refuses queue_full", "nothing no_key", "answers"},
			DecisionWhy{Kind: "answered", Tier: "canned", Status: 200, Reason: "queue_pressure"}},
		{"no queue, no time", nil, []string{"x-budget-ms", "0"},
			[]string{"refuses deadline_expired", "refuses deadline_expired", "nothing no_key", "answers"}, DecisionWhy{Kind: "shed", Status: 503, Reason: "deadline_expired"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := explain(t, hello, c.tiers, c.headers...)
			if diff := cmp.Diff(c.does, does(x)); diff != "" {
				t.Errorf("tiers (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(&c.now, x.Now); diff != "" {
				t.Errorf("now (-want +got)\n%s", diff)
			}
		})
	}
}

func TestExplainKnowsWhichRungsAreKeptTo(t *testing.T) {
	st := State{Tiers: []TierState{busy("full", 1, 1, 2, 0, 10*ms)}, Rungs: []RungState{{Route: "chat", Tier: "small", Low: true}}}
	c := Case{Request: request(), Body: []byte(hello), State: st}
	x := Explain(epoch, compile(t, explainable), c)
	if x.Ladder[0].Does != DoesRefuse || !x.Ladder[1].Low || x.Now.Tier != "small" {
		t.Errorf("kept to: %+v, now %+v", x.Ladder[:2], x.Now)
	}
	c.State.Rungs[0].Route = "other"
	x = Explain(epoch, compile(t, explainable), c)
	if x.Ladder[0].Does != DoesPark || x.Ladder[1].Low || x.Now.Tier != "full" || x.Now.Kind != "waits" {
		t.Errorf("another route's: %+v, now %+v", x.Ladder[:2], x.Now)
	}
}

func TestExplainSaysWhatIsRewrittenAndRepeated(t *testing.T) {
	x := explain(t, hello, nil, "x-stainless-retry-count", "1")
	full, small := x.Ladder[0], x.Ladder[1]
	if full.Rewrite != nil || full.Retry.Why != noRetryCaller || full.Degraded {
		t.Errorf("full: %+v", full)
	}
	want := &RewriteWhy{Path: "/small/completions?x=…", From: "m", To: "llama-8b", Headers: []string{"x-pool", "x-token"}}
	if diff := cmp.Diff(want, small.Rewrite); diff != "" || !small.Degraded {
		t.Errorf("small (-want +got)\n%s", diff)
	}
	if r := explain(t, "no JSON", nil).Ladder[1].Rewrite; !r.Kept {
		t.Errorf("a body without a place for a model: %+v", r)
	}
	if r := explain(t, hello, nil).Ladder[0].Retry; !r.Allowed || r.Why != "" {
		t.Errorf("a first attempt: %+v", r)
	}
	if r := explain(t, hello, []TierState{busy("full", 1, 0, 2, 0, 5*time.Second)}).Ladder[0].Retry; r.Why != noRetryTime {
		t.Errorf("a tier that is too slow for another attempt: %+v", r)
	}
}

func TestExplainReadsTheBodyWhereTheEngineDoes(t *testing.T) {
	x := explain(t, `{"stream":true,"model":"m"}`, nil)
	if diff := cmp.Diff(&BodyWhy{true, []string{"cache", "idempotency", "model", "template"}, true, 27, false, true}, x.Body); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !x.Dialect.Stream || x.Dialect.Name != "openai_chat" || x.Dialect.Model != "m" || !x.Ladder[3].Stream {
		t.Errorf("dialect: %+v", x.Dialect)
	}
	s := compile(t, twoTiers)
	x = Explain(epoch, s, Case{Request: request(), Body: []byte(`{"stream":true,"model":"m"}`)})
	if x.Body.Needed || x.Dialect.Stream || x.Dialect.Model != "" || x.Cache != nil || x.Idempotency != nil {
		t.Errorf("a route that decides on headers: %+v %+v", x.Body, x.Dialect)
	}
}

func TestExplainShowsNoSecret(t *testing.T) {
	const secret = "hush"
	r := Request{Method: "POST", Host: "user:hush@api.example", Path: "/v1/chat/completions?key=hush&sig=hush&hush&hush==&a=1#hush"}
	for _, name := range []string{"authorization", "x-api-key", "cookie", "x-team", "idempotency-key", "user-agent", "openai-project", "x-budget-ms"} {
		r.Headers = append(r.Headers, outcome.Header{Name: name, Value: secret})
	}
	src := strings.Replace(explainable, "version: 1", "version: 1\nbudget: {header: x-api-key}", 1)
	doc, err := json.Marshal(Explain(epoch, compile(t, src), Case{Request: r, Body: []byte(`{"messages":[{"content":"hush"}]}`)}))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(doc), secret) {
		t.Errorf("the secret is in %s", doc)
	}
	if !strings.Contains(string(doc), `"header":"x-api-key","why":`) {
		t.Errorf("the ignored credential is not named in %s", doc)
	}
}

// TestExplainForetellsWhatTheEngineDoes: on what an engine dumps, the next request is explained as that engine decides it.
func TestExplainForetellsWhatTheEngineDoes(t *testing.T) {
	s := compile(t, `
version: 1
tiers:
  full:  {model: {concurrency: 2, queue: 3}}
  small: {model: {concurrency: 1, queue: 2}}
routes: [{name: chat, ladder: [full, {small: {wait_over: 40ms}}]}]
`)
	headers := rapid.Custom(func(t *rapid.T) []string {
		return []string{"x-budget-ms", rapid.SampledFrom([]string{"-1", "1", "100", "2000"}).Draw(t, "budget"),
			"x-priority", rapid.SampledFrom([]string{"high", ""}).Draw(t, "priority"),
			"x-max-queue-ms", rapid.SampledFrom([]string{"", "0", "50"}).Draw(t, "queue"),
			"x-degrade", rapid.SampledFrom([]string{"", "never", "small"}).Draw(t, "degrade")}
	})
	rapid.Check(t, func(t *rapid.T) {
		e := New(epoch, s, Options{Now: func() time.Time { return epoch }})
		for _, hs := range rapid.SliceOfN(headers, 0, 12).Draw(t, "before") {
			e.Offer(epoch, request(hs...), func(Verdict) {})
		}
		for range rapid.IntRange(0, 3).Draw(t, "samples") {
			e.limiters["full"].Learn(rapid.SampledFrom([]time.Duration{ms, 300 * ms}).Draw(t, "service"), 0)
		}
		next := request(headers.Draw(t, "next")...)
		got := Explain(epoch, s, Case{Request: next, State: e.Dump(epoch, true)}).Now
		if diff := cmp.Diff(decide(epoch, e, next, nil), got); diff != "" {
			t.Fatalf("-engine +explained\n%s", diff)
		}
	})
}
