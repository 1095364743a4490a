package replay_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

func testKeys() *replay.Keys { return replay.NewKeys([]byte("the secret of the tests")) }

// subject is a request with headers "name: value", one a line.
func subject(path, headers string) replay.Subject {
	s := replay.Subject{Route: "chat", Method: "POST", Path: path}
	for line := range strings.Lines(headers) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		s.Headers = append(s.Headers, outcome.Header{Name: name, Value: value})
	}
	return s
}

// shared are the rules under which the most is shared.
func shared() replay.CacheRules { return replay.CacheRules{Anonymous: true} }

func cacheKey(t *testing.T, s replay.Subject, body string, r replay.CacheRules) replay.Key {
	t.Helper()
	k, why := testKeys().Cache(s, []byte(body), r)
	if why != "" {
		t.Fatalf("not kept: %s", why)
	}
	return k
}

// TestCallersWithOtherCredentialsHaveOtherKeys is C98 and C99.
func TestCallersWithOtherCredentialsHaveOtherKeys(t *testing.T) {
	const path = "/v1/chat/completions"
	requests := map[string]replay.Subject{
		"nobody": subject(path, ""), "another path": subject(path+"/", ""), "another query": subject(path+"?a=1", ""),
		"Gemini key": subject(path+"?key=A", ""), "another Gemini key": subject(path+"?key=B", ""),
		"Azure key": subject(path+"?api-key=A", ""), "access token": subject(path+"?access_token=A", ""),
		"two headers":       subject(path, "authorization: A\ncookie: A"),
		"two of one header": subject(path, "authorization: A\nauthorization: B"),
		"a merged header":   subject(path, "authorization: A,B"),
		"another method":    {Route: "chat", Method: "GET", Path: path},
		"another route":     {Route: "other", Method: "POST", Path: path},
	}
	for _, name := range []string{"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "x-forwarded-client-cert",
		"openai-organization", "openai-project", "openai-beta", "anthropic-beta", "anthropic-version", "accept", "x-goog-user-project", "content-type"} {
		requests[name+" A"] = subject(path, name+": A")
		requests[name+" B"] = subject(path, name+": B")
	}
	cache, idem := map[replay.Key]string{}, map[replay.Key]string{}
	for name, s := range requests {
		k := cacheKey(t, s, "{}", shared())
		if other, ok := cache[k]; ok {
			t.Errorf("%q and %q share an answer", name, other)
		}
		cache[k] = name
		if isPartOfIdempotency(name) {
			k = testKeys().Idempotency(s, "K")
			if other, ok := idem[k]; ok {
				t.Errorf("%q and %q share an idempotency key", name, other)
			}
			idem[k] = name
		}
	}
}

// isPartOfIdempotency leaves out requests that differ in nothing but the payload's form.
func isPartOfIdempotency(name string) bool {
	for _, p := range []string{"openai-", "anthropic-", "accept ", "x-goog-user-project", "content-type"} {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	return true
}

func TestWhatSplitsACacheKey(t *testing.T) {
	s := subject("/p", "authorization: A\nx-user: 1")
	base := cacheKey(t, s, "{}", replay.CacheRules{})
	for name, k := range map[string]replay.Key{
		"another body":   cacheKey(t, s, `{"a":1}`, replay.CacheRules{}),
		"another schema": cacheKey(t, s, "{}", replay.CacheRules{Schema: "v2"}),
		"a partition":    cacheKey(t, s, "{}", replay.CacheRules{Partition: []string{"x-user"}}),
		"one tier":       base.Tier("full"),
		"another tier":   base.Tier("small"),
	} {
		if k == base {
			t.Errorf("%s has the same key", name)
		}
	}
	if again := base.Tier("full"); again == base.Tier("small") || again != base.Tier("full") {
		t.Error("entries of tiers are not told apart")
	}
	r := replay.CacheRules{Partition: []string{"x-user"}}
	if cacheKey(t, s, "{}", r) == cacheKey(t, subject("/p", "authorization: A\nx-user: 2"), "{}", r) {
		t.Error("another value of a partition header has the same key")
	}
	if base != cacheKey(t, subject("/p", "authorization: A\nx-user: 2\nuser-agent: other"), "{}", replay.CacheRules{}) {
		t.Error("a header that is no part of the key splits it")
	}
	if cacheKey(t, subject("/p", "content-type: application/json; charset=utf-8"), "{}", shared()) != cacheKey(t, subject("/p", "content-type: Application/JSON"), "{}", shared()) {
		t.Error("parameters of the content type split the key")
	}
	other, _ := replay.NewKeys([]byte("another secret")).Cache(s, []byte("{}"), replay.CacheRules{})
	if other == base {
		t.Error("the secret is no part of the key")
	}
	random, _ := replay.NewKeys(nil).Tenant(s, nil)
	if again, _ := replay.NewKeys(nil).Tenant(s, nil); again == random {
		t.Error("two random secrets are the same")
	}
}

func TestWhyARequestHasNoCacheKey(t *testing.T) {
	for name, c := range map[string]struct {
		s    replay.Subject
		want string
	}{
		"no credential":              {subject("/p", "accept: a"), replay.WhyAnonymous},
		"blank credentials":          {subject("/p?key=&a=b", "authorization:  \ncookie: "), replay.WhyAnonymous},
		"a partition header alone":   {subject("/p", "x-user: 1"), replay.WhyAnonymous},
		"a credential":               {subject("/p", "x-api-key: A"), ""},
		"a key in the query":         {subject("/p?alt=sse&key=A", ""), ""},
		"an escaped key":             {subject("/p?%6bey=A", ""), ""},
		"a key of another case":      {subject("/p?Api-Key=A", ""), ""},
		"a longer name":              {subject("/p?monkey=A", ""), replay.WhyAnonymous},
		"no-store":                   {subject("/p", "x-api-key: A\ncache-control: max-age=5, No-Store"), replay.WhyNoStore},
		"no-store on a second line":  {subject("/p", "x-api-key: A\ncache-control: a\ncache-control: no-store"), replay.WhyNoStore},
		"no-cache":                   {subject("/p", "x-api-key: A\ncache-control: no-cache"), ""},
		"multipart":                  {subject("/p", "x-api-key: A\ncontent-type: Multipart/form-data; boundary=x"), replay.WhyMultipart},
		"another method than POST":   {replay.Subject{Method: "PUT", Headers: []outcome.Header{{Name: "x-api-key", Value: "A"}}}, replay.WhyMethod},
		"GET":                        {replay.Subject{Method: "GET", Headers: []outcome.Header{{Name: "x-api-key", Value: "A"}}}, ""},
		"a method of the other case": {replay.Subject{Method: "post", Headers: []outcome.Header{{Name: "x-api-key", Value: "A"}}}, replay.WhyMethod},
	} {
		t.Run(name, func(t *testing.T) {
			k, why := testKeys().Cache(c.s, nil, replay.CacheRules{Partition: []string{"x-user"}})
			if why != c.want || (why != "") != (k == replay.Key{}) {
				t.Errorf("%q, want %q", why, c.want)
			}
		})
	}
	if _, anonymous := testKeys().Tenant(subject("/p", ""), nil); !anonymous {
		t.Error("a request without credentials has a tenant")
	}
}

func TestIdempotencyKeysOfOtherTenantsPathsAndPayloads(t *testing.T) {
	k := testKeys()
	base := k.Idempotency(subject("/p?key=A", ""), "K")
	if base != k.Idempotency(subject("/p?key=A", "accept: other"), "K") {
		t.Error("a header of the payload's form makes another key")
	}
	for name, other := range map[string]replay.Key{
		"value": k.Idempotency(subject("/p?key=A", ""), "k"), "tenant": k.Idempotency(subject("/p?key=B", ""), "K"),
		"path": k.Idempotency(subject("/q?key=A", ""), "K"), "credential": k.Idempotency(subject("/p", "x-api-key: A"), "K"),
	} {
		if other == base {
			t.Errorf("another %s has the same key", name)
		}
	}
	if k.Fingerprint([]byte(`{"a":1}`)) == k.Fingerprint([]byte(`{"a":2}`)) {
		t.Error("payloads are not told apart")
	}
	if k.Fingerprint([]byte("K")) == base || k.Fingerprint(nil) == (replay.Key{}) {
		t.Error("a fingerprint is another kind of key")
	}
}

// credentials draws what identifies a caller, from a small alphabet so that values meet, move and are absent.
func credentials(rt *rapid.T, label string) []string {
	const names = "authorization x-api-key api-key x-goog-api-key cookie ?key ?api-key ?access_token"
	var out []string
	for _, name := range strings.Fields(names) {
		for _, v := range rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("AB")), 1, 2, -1), 0, 2).Draw(rt, label+" "+name) {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// request makes a request of somebody with these credentials, with headers of no meaning between them.
func request(rt *rapid.T, label string, creds []string) replay.Subject {
	s := replay.Subject{Route: "r", Method: "POST"}
	query := []string{}
	for _, c := range creds {
		name, value, _ := strings.Cut(c, "=")
		if param, ok := strings.CutPrefix(name, "?"); ok {
			query = append(query, param+"="+value)
			continue
		}
		s.Headers = append(s.Headers, outcome.Header{Name: name, Value: value})
		if rapid.Bool().Draw(rt, label+" noise") {
			s.Headers = append(s.Headers, outcome.Header{Name: "user-agent", Value: "u"})
		}
	}
	s.Path = "/p"
	if len(query) > 0 {
		s.Path += "?" + strings.Join(query, "&")
	}
	return s
}

func TestTwoTenantsNeverShareAnAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := credentials(rt, "a"), credentials(rt, "b")
		ra, rb := request(rt, "a", a), request(rt, "b", b)
		rules := replay.CacheRules{Anonymous: rapid.Bool().Draw(rt, "anonymous shares")}
		ka, whyA := testKeys().Cache(ra, []byte("{}"), rules)
		kb, whyB := testKeys().Cache(rb, []byte("{}"), rules)
		for _, x := range []struct {
			creds []string
			why   string
		}{{a, whyA}, {b, whyB}} {
			if want := len(x.creds) == 0 && !rules.Anonymous; (x.why == replay.WhyAnonymous) != want {
				rt.Fatalf("credentials %q: %q", x.creds, x.why)
			}
		}
		if whyA != "" || whyB != "" {
			return
		}
		if same := slices.Equal(a, b); (ka == kb) != same {
			rt.Fatalf("same key %t, same credentials %t\n%q\n%q", ka == kb, same, a, b)
		}
		ta, _ := testKeys().Tenant(ra, nil)
		tb, _ := testKeys().Tenant(rb, nil)
		ia, ib := testKeys().Idempotency(ra, "K"), testKeys().Idempotency(rb, "K")
		if same := slices.Equal(a, b); (ta == tb) != same || (ia == ib) != same {
			rt.Fatalf("tenants or idempotency keys: same credentials %t\n%q\n%q", same, a, b)
		}
	})
}

// TestMovingBytesBetweenFieldsChangesTheKey draws two requests whose fields, joined, read alike more often than not.
func TestMovingBytesBetweenFieldsChangesTheKey(t *testing.T) {
	type fields struct{ Route, Path, Schema, Accept, Beta, Auth, Part, Body string }
	draw := func(rt *rapid.T, label string) fields {
		text := func(name string) string {
			return rapid.StringOfN(rapid.RuneFrom([]rune("ab\x00?=&")), 0, 3, -1).Draw(rt, label+" "+name)
		}
		return fields{text("route"), text("path"), text("schema"), text("accept"), text("beta"), text("auth"), text("part"), text("body")}
	}
	keys := func(f fields) (replay.Key, replay.Key) {
		s := replay.Subject{Route: f.Route, Method: "POST", Path: f.Path, Headers: []outcome.Header{
			{Name: "authorization", Value: f.Auth}, {Name: "accept", Value: f.Accept}, {Name: "anthropic-beta", Value: f.Beta}, {Name: "x-part", Value: f.Part}}}
		k, _ := testKeys().Cache(s, []byte(f.Body), replay.CacheRules{Schema: f.Schema, Anonymous: true, Partition: []string{"x-part"}})
		return k, testKeys().Idempotency(s, f.Body)
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := draw(rt, "a"), draw(rt, "b")
		if rapid.Bool().Draw(rt, "move") { // the same bytes, one of them in the next field
			b = a
			if n := len(a.Route); n > 0 {
				b.Route, b.Path = a.Route[:n-1], a.Route[n-1:]+a.Path
			} else if n := len(a.Accept); n > 0 {
				b.Accept, b.Beta = a.Accept[:n-1], a.Accept[n-1:]+a.Beta
			} else if n := len(a.Schema); n > 0 {
				b.Schema, b.Body = a.Schema[:n-1], a.Schema[n-1:]+a.Body
			}
		}
		ca, ia := keys(a)
		cb, ib := keys(b)
		if (ca == cb) != (a == b) {
			rt.Fatalf("cache keys: same %t\n%+q\n%+q", ca == cb, a, b)
		}
		same := a.Route == b.Route && a.Path == b.Path && a.Auth == b.Auth && a.Body == b.Body
		if (ia == ib) != same {
			rt.Fatalf("idempotency keys: same %t\n%+q\n%+q", ia == ib, a, b)
		}
	})
}

// TestNothingSecretIsPrinted looks for what must stay hidden, as text, as hexadecimal and as numbers.
func TestNothingSecretIsPrinted(t *testing.T) {
	const secret, credential, answer = "SECRETSECRETSECRET", "CREDENTIALCREDENTIAL", "ANSWERANSWERANSWER"
	keys := replay.NewKeys([]byte(secret))
	s := subject("/p?key="+credential, "authorization: "+credential)
	tenant, _ := keys.Tenant(s, nil)
	e := replay.Entry{Status: 200, Body: []byte(answer), Headers: []outcome.Header{{Name: "a", Value: answer}}, Stored: start()}
	m := replay.NewMemory(1 << 20)
	m.Save(start(), tenant, &e, time.Hour)
	var claim replay.Claim
	m.Claim(start(), tenant, tenant, func(c replay.Claim, _ error) { claim = c })
	done := replay.Claim{State: replay.Done, Entry: &e}
	f := replay.NewFlights[int]()
	seat := f.Join(tenant, nil)
	hidden := []string{secret, credential, answer}
	for _, b := range [][]byte{[]byte(secret), []byte(credential), []byte(answer), tenant[:]} {
		numbers := strings.Trim(fmt.Sprint(b), "[]")
		hidden = append(hidden, fmt.Sprintf("%x", b), fmt.Sprintf("%X", b), numbers, strings.ReplaceAll(numbers, " ", ","), string(b))
	}
	for _, v := range []any{keys, *keys, s, &s, tenant, &tenant, e, &e, m, claim, &claim, done, f, seat, map[replay.Key]replay.Key{tenant: tenant},
		[]any{tenant, s, e}, struct{ K replay.Key }{tenant}, replay.Landing[int]{Seat: seat}} {
		asJSON, err := json.Marshal(v)
		if err != nil && !strings.Contains(err.Error(), "unsupported type") {
			t.Errorf("%T: %v", v, err)
		}
		out := string(asJSON)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
			out += fmt.Sprintf(verb, v)
		}
		for _, h := range hidden {
			if strings.Contains(out, h) {
				t.Errorf("%T prints %q in %s", v, h, out)
			}
		}
	}
	if tenant.String() != fmt.Sprint(tenant) {
		t.Error("String and Format differ")
	}
}

func TestClaimStatesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for s := replay.NoClaim; s <= replay.Mismatch; s++ {
		seen[s.String()] = true
	}
	for k := replay.NoLanding; k <= replay.Dissolved; k++ {
		seen[k.String()] = true
	}
	if len(seen) != 8 || seen[""] || seen["invalid"] || replay.ClaimState(99).String() != "invalid" || replay.LandingKind(99).String() != "invalid" {
		t.Errorf("names %v", seen)
	}
}

func BenchmarkCacheKey(b *testing.B) {
	keys, body := testKeys(), []byte(strings.Repeat("x", 2048))
	s := subject("/v1/chat/completions", "authorization: Bearer sk-0123456789\ncontent-type: application/json\naccept: */*\nuser-agent: a")
	b.ReportAllocs()
	for b.Loop() {
		if _, why := keys.Cache(s, body, replay.CacheRules{Schema: "v1"}); why != "" {
			b.Fatal(why)
		}
	}
}
