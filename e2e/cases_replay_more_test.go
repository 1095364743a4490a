package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// caseC96: an answer that ended at a length limit is not kept, and the limit is part of the key.
func caseC96(x *caseBench) {
	capped := strings.Replace(wholeChat, `"stop"`, `"length"`, 1)
	k, v := x.says("capped", script{chunks: []string{capped}})
	limited := func(tokens int) string {
		return strings.Replace(x.question("capped"), "{", fmt.Sprintf(`{"max_tokens":%d,`, tokens), 1)
	}
	x.wantOwn("the same again", 2, func(int) answer { return x.post("/v1", limited(5), k, v) })
	x.wantOwn("a larger limit", 1, func(int) answer { return x.post("/v1", limited(50), k, v) })
	x.wantOwn("two limits", 2, func(i int) answer { return x.post("/v1", limited(500+i), "x-script", "fast") })
	x.wantHit("one of them again", x.post("/v1", limited(500), "x-script", "fast"), wholeChat)
}

// caseC97: what is less than it could be is not kept; a whole answer of a lower tier is, under that tier and with its label.
func caseC97(x *caseBench) {
	k, v := x.says("500", script{status: 500, chunks: []string{`{"error":{"message":"x"}}`}})
	x.wantStandIn("the apology", x.post("/laddered", "apology", k, v), "upstream_error")
	x.wantOwn("after it", 1, func(int) answer { return x.post("/laddered", "apology", "x-script", "fast") })

	k, v = x.says("degraded further in", script{header: map[string]string{"content-type": "application/json", "x-degraded": "true", "x-degraded-reason": "queue_pressure"}, chunks: []string{wholeChat}})
	x.wantOwn("degraded further in", 2, func(int) answer { return x.post("/v1", "inner", k, v) })
	k, v = x.says("no-store", script{header: map[string]string{"content-type": "application/json", "cache-control": "no-store"}, chunks: []string{wholeChat}})
	x.wantOwn("no-store", 2, func(int) answer { return x.post("/v1", "no-store", k, v) })
	k, v = x.says("empty", script{chunks: []string{emptyChat}})
	x.wantOwn("empty", 2, func(int) answer { return x.post("/v1", "empty", k, v) })
	k, v = x.says("refused", script{chunks: []string{strings.Replace(wholeChat, `"content":"four"`, `"content":null,"refusal":"I can't"`, 1)}})
	x.wantOwn("refused", 2, func(int) answer { return x.post("/v1", "refused", k, v) })

	x.staleIsNotFresh()
	x.lowerTierIsKeptAsSuch()
}

// staleIsNotFresh: a stale answer stands in and does not become a fresh one by that.
func (x *caseBench) staleIsNotFresh() {
	x.t.Helper()
	k, v := x.says("500 when stale", script{status: 500, chunks: []string{`{"error":{"message":"x"}}`}})
	x.wantOwn("to be stale", 1, func(int) answer { return x.post("/stale", "stale", "x-script", "fast") })
	pause(250 * time.Millisecond)
	for range 2 {
		before := x.u.total()
		a := x.post("/stale", "stale", k, v)
		if a.status != 200 || a.header.Get("x-brownout-source") != "replay" || a.header.Get("x-degraded-reason") != "stale" || !strings.Contains(a.body, `"reason":"stale"`) {
			x.t.Errorf("%s %v, want a stale answer that says so", a, a.header)
		}
		x.wantCalls(before, 1) // the upstream was asked first
	}
	x.wantOwn("a fresh one", 1, func(int) answer { return x.post("/stale", "stale", "x-script", "fast") })
}

// lowerTierIsKeptAsSuch: the small tier's answer is replayed in its own place alone, labelled both times.
func (x *caseBench) lowerTierIsKeptAsSuch() {
	x.t.Helper()
	release := x.hold()
	label := `"meta":{"tier":"small","degraded":true,"reason":"queue_pressure"`
	for i, source := range []string{"upstream", "replay"} {
		a := x.post("/narrow", "small", "x-script", "fast")
		if a.header.Get("x-brownout-source") != source || a.header.Get("x-tier") != "small" || a.header.Get("x-degraded-reason") != "queue_pressure" || !strings.Contains(a.body, label) {
			x.t.Errorf("request %d: %s %v, want the small tier's answer from %s", i, a, a.header, source)
		}
	}
	release()
	if a := x.post("/narrow", "small", "x-script", "fast"); a.header.Get("x-tier") != "narrow" || a.header.Get("x-brownout-source") != "upstream" || a.body != wholeChat {
		x.t.Errorf("with a free slot: %s, want the better tier's own answer", a)
	}
}

// caseC98: callers who differ in a credential share nothing; who has none shares only where the policy says so.
func caseC98(x *caseBench) {
	for _, who := range [][]string{{"authorization", "Bearer A"}, {"authorization", "Bearer B"}, {"anonymous", "x-api-key", "A"}, {"anonymous", "x-api-key", "B"},
		{"anonymous", "cookie", "A"}, {"anonymous", "cookie", "B"}, {"anonymous"}, {"anonymous"}} {
		x.wantOwn(strings.Join(who, " "), 1, func(int) answer { return x.post("/v1", "whose", append(who, "x-script", "fast")...) })
	}
	for _, key := range []string{"A", "B"} {
		x.wantOwn("?key="+key, 1, func(int) answer {
			return x.postAs(x.t.Context(), x.c, "/v1/chat/completions?key="+key, x.question("whose"), "x-script", "fast")
		})
	}
	x.wantHit("A again", x.post("/v1", "whose", "authorization", "Bearer A", "x-script", "fast"), wholeChat)
	x.wantOwn("shared", 1, func(int) answer { return x.post("/shared", "whose", "anonymous", "x-script", "fast") })
	x.wantHit("shared again", x.post("/shared", "whose", "anonymous", "x-script", "fast"), wholeChat)
	x.wantOwn("shared with those who say who they are", 1, func(int) answer { return x.post("/shared", "whose", "authorization", "Bearer A", "x-script", "fast") })
}

// caseC99: headers that change an answer without saying who asks part answers too.
func caseC99(x *caseBench) {
	for _, name := range []string{"openai-organization", "openai-project", "anthropic-beta", "accept"} {
		x.wantOwn(name, 2, func(i int) answer { return x.post("/v1", "apart", name, fmt.Sprintf("v/%d", i), "x-script", "fast") })
		x.wantHit(name+" again", x.post("/v1", "apart", name, "v/0", "x-script", "fast"), wholeChat)
	}
}

// caseC101: a replay always says that it is one, and a failure is never replayed.
func caseC101(x *caseBench) {
	x.wantOwn("first", 1, func(int) answer { return x.post("/v1", "kept", "idempotency-key", "C101", "x-script", "fast") })
	x.wantHit("by the cache", x.post("/v1", "kept", "x-script", "fast"), wholeChat)
	x.wantHit("by the key", x.post("/v1", "kept", "idempotency-key", "C101", "x-script", "fast"), wholeChat)
	leader := make(chan answer, 1)
	go func() { leader <- x.post("/v1", "joined", "x-script", "slow") }()
	x.waitInflight("full", 1, 0)
	x.wantHit("by joining", x.post("/v1", "joined", "x-script", "slow"), wholeChat)
	if a := <-leader; a.header.Get("idempotent-replayed") != "" {
		x.t.Errorf("the first: %s %v", a, a.header)
	}
	k, v := x.says("500", script{status: 500, chunks: []string{`{"error":{"message":"x"}}`}})
	x.wantOwn("a failure", 2, func(int) answer {
		a := x.post("/v1", "failed", "idempotency-key", "C101-failed", k, v)
		if a.status != 500 || a.header.Get("idempotent-replayed") != "" {
			x.t.Errorf("%s %v, want the failure itself", a, a.header)
		}
		return a
	})
}

// caseC102: a retry while the first is in flight learns its result; a key that is done replays; another payload is told.
func caseC102(x *caseBench) {
	leader := make(chan answer, 1)
	before := x.u.total()
	go func() { leader <- x.post("/v1", "first", "idempotency-key", "C102", "x-script", "slow") }()
	x.waitInflight("full", 1, 0)
	hurried := x.post("/v1", "first", "idempotency-key", "C102", "x-script", "slow", "x-budget-ms", "200")
	x.wantError("at its own deadline", hurried, 409, "in_flight")
	checkHeader(x.t, hurried, "retry-after", "1")
	x.wantHit("in flight", x.post("/v1", "first", "idempotency-key", "C102", "x-script", "slow"), wholeChat)
	<-leader
	x.wantHit("done", x.post("/v1", "first", "idempotency-key", "C102", "x-script", "slow"), wholeChat)
	x.wantError("another payload", x.post("/v1", "second", "idempotency-key", "C102", "x-script", "slow"), 422, "payload_mismatch")
	x.wantCalls(before, 1)
}

// caseC103: a failure frees its key. That a crash does too: TestThePluginDiesBetweenTheAnswerAndTheStore.
func caseC103(x *caseBench) {
	k, v := x.says("500", script{status: 500, chunks: []string{`{"error":{"message":"x"}}`}})
	x.wantOwn("failed", 1, func(int) answer { return x.post("/v1", "q", "idempotency-key", "C103", k, v) })
	x.wantOwn("the second run", 1, func(int) answer { return x.post("/v1", "q", "idempotency-key", "C103", "x-script", "fast") })
}

// caseC104: a key is of one tenant and one path, and a replay keeps the status and what belongs to the answer.
func caseC104(x *caseBench) {
	k, v := x.says("accepted", script{status: 202, header: map[string]string{"content-type": "application/json", "location": "/jobs/7", "date": "Mon, 01 Jan 2001 00:00:00 GMT",
		"set-cookie": "a=b", "x-request-id": "r1", "x-ratelimit-remaining-requests": "5"}, chunks: []string{wholeChat}})
	ask := func(path string, who string) answer {
		return x.postAs(x.t.Context(), x.c, path, x.question("job"), "authorization", who, "idempotency-key", "C104", k, v)
	}
	x.wantOwn("two paths", 2, func(i int) answer {
		return ask([]string{"/v1/chat/completions", "/v1/jobs/chat/completions"}[i], "Bearer A")
	})
	x.wantOwn("two tenants", 1, func(int) answer { return ask("/v1/chat/completions", "Bearer B") })
	a := ask("/v1/chat/completions", "Bearer A")
	if a.status != 202 || a.body != wholeChat || a.header.Get("idempotent-replayed") != "true" {
		x.t.Errorf("%s, want a replay of the 202", a)
	}
	checkHeader(x.t, a, "location", "/jobs/7")
	for _, name := range []string{"set-cookie", "x-request-id", "x-ratelimit-remaining-requests"} {
		checkHeader(x.t, a, name, "")
	}
	if a.header.Get("date") == "Mon, 01 Jan 2001 00:00:00 GMT" {
		x.t.Error("the first answer's date is replayed")
	}
}

// caseC106: a key is one string, quoted or bare; anything else is an error of the caller's, whatever is kept.
func caseC106(x *caseBench) {
	x.wantOwn("bare", 1, func(int) answer { return x.post("/v1", "q", "idempotency-key", "abc", "x-script", "fast") })
	x.wantHit("quoted", x.post("/v1", "q", "idempotency-key", `"abc"`, "x-script", "fast"), wholeChat)
	before := x.u.total()
	for what, lines := range map[string][]string{"empty": {""}, "an empty string": {`""`}, "300 characters": {strings.Repeat("k", 300)}, "two": {"abc", "abc"}} {
		headers := []string{"x-script", "fast"}
		for _, l := range lines {
			headers = append(headers, "idempotency-key", l)
		}
		x.wantError(what, x.post("/v1", "q", headers...), 400, "idempotency_key")
	}
	for what, key := range map[string]string{"a line feed": "a\nb", "a zero": "a\x00b", "a control": "a\x01b", "a tab": "a\tb"} { // Envoy makes a CR a blank
		if status := x.raw("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-script: fast\r\nidempotency-key: " + key + "\r\ncontent-length: 2\r\n\r\n{}"); status != "400" && status != "closed" {
			x.t.Errorf("%s: status %s", what, status)
		}
	}
	x.wantCalls(before, 0)
}

// raw sends a request byte for byte and returns the status, or that the connection was closed without one.
func (x *caseBench) raw(text string) string {
	x.t.Helper()
	conn, err := net.Dial("tcp", x.envoy.Addr)
	if err != nil {
		x.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		x.t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "closed"
	}
	if err != nil {
		x.t.Fatal(err)
	}
	_, status, _ := strings.Cut(strings.TrimSpace(line), " ")
	status, _, _ = strings.Cut(status, " ")
	return status
}

// caseC107: any member of the request counts, known or not, unless the policy leaves it out; how it is written does not.
func caseC107(x *caseBench) {
	traced := func(trace string) string { return strings.Replace(x.question("q"), "{", `{"x_trace":"`+trace+`",`, 1) }
	x.wantOwn("two traces", 2, func(i int) answer { return x.post("/v1", traced(fmt.Sprint(i)), "x-script", "fast") })
	x.wantOwn("under a key", 1, func(int) answer { return x.post("/v1", traced("2"), "idempotency-key", "C107", "x-script", "fast") })
	x.wantError("another trace under it", x.post("/v1", traced("3"), "idempotency-key", "C107", "x-script", "fast"), 422, "payload_mismatch")
	spaced := strings.NewReplacer(`":`, `" : `, `,"`, `, "`).Replace(traced("2"))
	x.wantHit("written otherwise", x.post("/v1", spaced, "idempotency-key", "C107", "x-script", "fast"), wholeChat)
	x.wantOwn("left out by the policy", 1, func(int) answer { return x.post("/ignoring", traced("1"), "x-script", "fast") })
	x.wantHit("left out by the policy, again", x.post("/ignoring", traced("2"), "x-script", "fast"), wholeChat)
}
