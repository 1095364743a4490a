package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// secretPolicy uses everything that sees a credential, a key or a body.
const secretPolicy = `version: 1
tiers:
  full:   {model: {concurrency: 2, queue: 4}}
  cached: {cache: {stale_for: 1h}}
  canned: {template: {text: "We are at capacity."}}
routes:
- name: chat
  match: {path: {prefix: /v1}}
  ladder: [full, cached, canned]
  cache: {ttl: 1h, partition: [x-seat]}
  idempotency: {ttl: 1h}
`

// told are things a caller says that nobody else may learn, by where they are said.
var told = map[string]string{
	"authorization": "sk-told-by-bearer", "x-api-key": "told-by-x-api-key", "api-key": "told-by-api-key", "cookie": "session=told-by-cookie",
	"x-goog-api-key": "told-by-goog", "x-seat": "told-by-partition", "idempotency-key": "told-by-idempotency-key",
}

const (
	toldInQuery  = "told-in-the-query"
	toldInBody   = "told-in-the-body"
	toldInAnswer = "told-in-the-answer"
)

// TestNothingSecretIsShown: no credential, key or body is in the log at its most talkative, in the metrics or in the state,
// whatever became of the requests and of the store. A Redis learns the answers, and neither questions nor callers.
func TestNothingSecretIsShown(t *testing.T) {
	redis := testkit.StartRedis(t, testkit.RedisOptions{Password: redisPassword})
	s, u := startReplays(t, stackOptions{policy: secretPolicy + redisPolicy(t, redis.Addr), serve: []string{"--log-level", "debug"}})
	c := newClient(t, false)
	body := strings.Replace(wholeChat, "four", toldInAnswer, 1)
	header := map[string]string{"content-type": "application/json"}
	u.add("told", script{header: header, chunks: []string{body}})
	u.add("told slowly", script{header: header, chunks: []string{body[:50], body[50:]}, gap: 500 * time.Millisecond})
	u.add("told 500", script{status: 500, header: header, chunks: []string{`{"error":{"message":"` + toldInAnswer + `"}}`}})
	u.add("told and cut", script{header: header, chunks: []string{body[:len(body)-30]}, end: cut})

	x := &secretive{t: t, s: s, c: c}
	x.tell("a", "told", 200)
	x.tell("a", "told", 200) // replayed
	x.tell("a", "told", 422, "b")
	x.tell("b", "told 500", 200) // the template
	x.tell("c", "told and cut", 200)
	held := redisHolds(t, redis.Addr)
	for _, script := range []string{"told slowly", "told slowly", "told slowly"} { // joined, a budget that is too short, a store that dies
		x.tell("d", script, 200, "e", "x-budget-ms", "100")
	}
	redis.Kill()
	for range 3 {
		x.tell("f", "told", 200)
	}
	s.waitInflight("full", 0, 0)

	shown := map[string]string{"the log": s.brownout.Log(), "/metrics": get(t, s.httpURL+"/metrics"), "/debug/state": get(t, s.adminURL+"/debug/state")}
	for where, text := range shown {
		if len(text) < 200 {
			t.Errorf("%s is empty", where)
		}
		for _, secret := range secrets() {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s shows %q: …%s…", where, secret, text[max(0, i-80):min(len(text), i+80)])
			}
		}
	}
	if !strings.Contains(held, toldInAnswer) {
		t.Errorf("Redis has no answer: %d bytes", len(held))
	}
	for _, secret := range secrets() {
		if secret != toldInAnswer && strings.Contains(held, secret) {
			t.Errorf("Redis learns %q", secret)
		}
	}
}

// secrets are what must not be shown, as it is and as programs like to write it.
func secrets() (out []string) {
	for _, v := range told {
		out = append(out, strings.TrimPrefix(v, "session="))
	}
	for _, v := range []string{storeSecret, redisPassword} {
		out = append(out, v, hex.EncodeToString([]byte(v)), base64.StdEncoding.EncodeToString([]byte(v))[:20])
	}
	return append(out, toldInQuery, toldInBody, toldInAnswer)
}

type secretive struct {
	t *testing.T
	s *stack
	c *http.Client
}

// tell sends a request that says everything, under a key of name; more are a question of another name, and headers.
func (x *secretive) tell(name, script string, status int, more ...string) {
	x.t.Helper()
	question := name
	headers := []string{"x-script", script, "x-seat", told["x-seat"], "idempotency-key", told["idempotency-key"] + "-" + name, "authorization", "Bearer " + told["authorization"]}
	for _, k := range []string{"x-api-key", "api-key", "cookie", "x-goog-api-key"} {
		headers = append(headers, k, told[k])
	}
	if len(more) > 0 {
		question, headers = more[0], append(headers, more[1:]...)
	}
	a := x.s.postAs(x.t.Context(), x.c, chatPath+"?key="+toldInQuery, `{"model":"m","messages":[{"role":"user","content":"`+toldInBody+question+`"}]}`, headers...)
	if a.status != status {
		x.t.Errorf("%s: %s, want status %d", name, a, status)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// redisHolds is everything a Redis has, keys and values, as the server writes it to a replica that asks for all
// (https://redis.io/docs/latest/develop/reference/protocol-spec/): without compression, so that it can be searched.
func redisHolds(t *testing.T, addr string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	const all = `local out = {} for _, k in ipairs(redis.call('KEYS', '*')) do out[#out+1] = k out[#out+1] = redis.call('GET', k) end return table.concat(out, ' ')`
	if _, err := io.WriteString(conn, "AUTH "+redisPassword+"\r\nEVAL \""+all+"\" 0\r\nQUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
