package policy

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryFieldReachesTheSnapshot(t *testing.T) {
	const src = `
version: 1
budget: {header: X-Wait, default: 1500ms, max: 1m, default_covers: whole}
priority: {header: X-Class, map: {gold: 5, "0": -5}, default: 1, trust: internal}
tiers:
  zeta: {model: {concurrency: {total: 12, replicas: 3}, queue: 1, order: edf}}
  alpha: {model: {concurrency: 2, queue: 7, rewrite: {model: Qwen 3/8B, path: /v2/chat, headers: {X-Pool: small one, a: "1"}}}}
  kept:  {cache: {stale_for: 1h}}
  fresh: {cache: {}}
  fixed: {template: {text: "Zwölf.\n"}}
ladder_dwell: 3s
store:
  redis: {address: "[::1]:6379", username: brownout, password_file: /run/pw, tls: true, prefix: "b:", timeout: 5ms}
  secret_file: /run/secret
routes:
- name: chat
  match: {method: [POST, PUT], path: {exact: /v1/chat}}
  ladder: [alpha, {zeta: {wait_over: 250ms}}, {kept: {wait_over: 0s}}, fresh, fixed]
  ladder_dwell: 0s
  cache: {ttl: 30s, schema: v3, normalize: exact, ignore: [user, metadata], partition: [X-Team], anonymous: share, sampled: true}
  idempotency: {ttl: 1h, header: X-Key}
  retry: {retries: 1, budget: 30}
  on: {empty: next}
  failure: closed
  shed: {status: {queue_full: 429, memory: 503}}
  budget: {default: 2s, default_covers: first_content}
  stream: {seal: false, idle: 30s, linger: 500ms, first_token: 8s, max: 10m, dialect: openai_chat, evidence: eof, terminal: error, hold_headers: none}
- name: rest
  match: {method: GET}
  ladder: [zeta]
  stream: false
`
	got, problems := Parse("p", []byte(src))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	budget := Budget{Header: "x-wait", Default: 1500 * time.Millisecond, Max: time.Minute, DefaultCovers: CoversWhole}
	want := &Snapshot{
		Hash:     fmt.Sprintf("%x", sha256.Sum256([]byte(src)))[:16],
		Budget:   budget,
		Priority: Priority{Header: "x-class", Values: map[string]int{"gold": 5, "0": -5}, Default: 1, Trust: TrustInternal},
		Tiers: []Tier{
			{Name: "zeta", Model: &Model{Concurrency: 4, Queue: 1, Order: OrderEDF}},
			{Name: "alpha", Model: &Model{Concurrency: 2, Queue: 7, Order: OrderEDF, Rewrite: Rewrite{
				Model: "Qwen 3/8B", Path: "/v2/chat", Headers: []Header{{"x-pool", "small one"}, {"a", "1"}}}}},
			{Name: "kept", Cache: &Cached{StaleFor: time.Hour}},
			{Name: "fresh", Cache: &Cached{}},
			{Name: "fixed", Template: &Template{Text: "Zwölf.\n"}},
		},
		Store: Store{Memory: 256 << 20, SecretFile: "/run/secret", Redis: &Redis{
			Address: "[::1]:6379", Username: "brownout", PasswordFile: "/run/pw", TLS: true, Prefix: "b:", Timeout: 5 * time.Millisecond}},
		Routes: []Route{{
			Name: "chat", Match: Match{Methods: []string{"POST", "PUT"}, Path: PathMatch{Exact: "/v1/chat"}},
			Budget: Budget{Header: "x-wait", Default: 2 * time.Second, Max: time.Minute, DefaultCovers: CoversFirstContent},
			Ladder: []Rung{{Tier: 1}, {Tier: 0, WaitOver: 250 * time.Millisecond, HasWaitOver: true}, {Tier: 2, HasWaitOver: true}, {Tier: 3}, {Tier: 4}},
			Cache: &Cache{TTL: 30 * time.Second, Schema: "v3", Normalize: NormalizeExact, Ignore: []string{"user", "metadata"},
				Partition: []string{"x-team"}, Anonymous: true, Sampled: true},
			Idempotency: &Idempotency{Header: "x-key", TTL: time.Hour}, Retries: 1, RetryBudget: 30, ReplaceEmpty: true,
			Failure: FailClosed, ShedStatus: map[string]int{"queue_full": 429, "memory": 503},
			Stream: Stream{Watch: true, Idle: 30 * time.Second, Linger: 500 * time.Millisecond, FirstToken: 8 * time.Second, Max: 10 * time.Minute,
				Dialect: "openai_chat", EvidenceEOF: true, Terminal: TerminalError},
		}, {
			Name: "rest", Match: Match{Methods: []string{"GET"}}, Budget: budget, Ladder: []Rung{{Tier: 0}}, Failure: FailOpen, Dwell: 3 * time.Second, RetryBudget: 20,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
}

func TestAnEmptyMappingSwitchesOnWithTheDefaults(t *testing.T) {
	s := mustParse(t, "version: 1\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\nstore: {redis: {address: \"localhost:6379\"}, secret_file: /s}\n"+
		"routes: [{name: a, ladder: [full], cache: {}, idempotency: {}, retry: {}, on: {}}]\n")
	r := s.Routes[0]
	want := Route{Name: "a", Budget: Defaults().Budget, Ladder: []Rung{{}}, Stream: DefaultStream(), Dwell: 2 * time.Second, RetryBudget: 20,
		Cache: &Cache{TTL: time.Minute}, Idempotency: &Idempotency{Header: "idempotency-key", TTL: 24 * time.Hour}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("route (-want +got):\n%s", diff)
	}
	store := Store{Memory: 256 << 20, SecretFile: "/s", Redis: &Redis{Address: "localhost:6379", Prefix: "brownout:", Timeout: 20 * time.Millisecond}}
	if diff := cmp.Diff(store, s.Store); diff != "" {
		t.Errorf("store (-want +got):\n%s", diff)
	}
}

func TestADwellOfTheFileIsThatOfItsRoutes(t *testing.T) {
	s := mustParse(t, "version: 1\nladder_dwell: 5s\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\n"+
		"routes: [{name: a, match: {method: GET}, ladder: [full]}, {name: b, ladder: [full], ladder_dwell: 0s}]\n")
	if a, b := s.Routes[0].Dwell, s.Routes[1].Dwell; a != 5*time.Second || b != 0 {
		t.Errorf("dwell %v and %v, want 5s and 0s", a, b)
	}
}

func TestSizesArePowersOf1024(t *testing.T) {
	for text, want := range map[string]int64{"1MiB": 1 << 20, "1536KiB": 1536 << 10, "256MiB": 256 << 20, "2GiB": 2 << 30, "1024GiB": 1 << 40} {
		s := mustParse(t, "version: 1\nstore: {memory: {max: "+text+"}}\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\nroutes: [{name: a, ladder: [full], cache: {}}]\n")
		if s.Store.Memory != want {
			t.Errorf("%s is %d bytes, want %d", text, s.Store.Memory, want)
		}
	}
	for v, want := range map[int64]string{1 << 20: "1MiB", 1536 << 10: "1536KiB", 1 << 40: "1024GiB", 1000: "1000 bytes"} {
		if got := size(v); got != want {
			t.Errorf("%d bytes are written %q, want %q", v, got, want)
		}
	}
	for _, text := range []string{"1025GiB", "99999999999GiB", "1KiB", "0MiB", "1MB", "1.5GiB", "1 GiB", "-1MiB", "GiB"} {
		s, problems := Parse("p", []byte("version: 1\nstore: {memory: {max: "+text+"}}\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\nroutes: [{name: a, ladder: [full], cache: {}}]\n"))
		if s != nil || len(problems) != 1 || problems[0].Col != 23 {
			t.Errorf("%s: problems %v, want one where the size is", text, problems)
		}
	}
}

func TestUnsetIsTheDefaultAndEmptyIsNot(t *testing.T) {
	const rest = "\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\nroutes: [{name: a, ladder: [full]}]\n"
	unset := mustParse(t, "version: 1"+rest)
	if diff := cmp.Diff(Defaults().Priority, unset.Priority); diff != "" {
		t.Errorf("priority (-default +got):\n%s", diff)
	}
	if diff := cmp.Diff(DefaultStream(), unset.Routes[0].Stream); diff != "" {
		t.Errorf("stream (-default +got):\n%s", diff)
	}
	empty := mustParse(t, "version: 1\npriority: {map: {}, default: 0}"+rest)
	if n := len(empty.Priority.Values); n != 0 {
		t.Errorf("an empty map has %d values, want none", n)
	}
}

func TestSnapshotsOfOneFileShareNothing(t *testing.T) {
	f, problems := Load("p", []byte("version: 1\npriority: {map: {a: 1}}\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\n"+
		"routes: [{name: a, match: {method: GET}, ladder: [full], shed: {status: {memory: 429}}, cache: {ignore: [user], partition: [x-a]}}]\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	first, _ := f.Compile()
	second, _ := f.Compile()
	first.Routes[0].Cache.Ignore[0], first.Routes[0].Cache.Partition[0] = "other", "x-b"
	first.Priority.Values["a"], first.Routes[0].ShedStatus["memory"], first.Routes[0].Match.Methods[0] = 2, 500, "PUT"
	third, _ := f.Compile()
	if diff := cmp.Diff(second, third); diff != "" {
		t.Errorf("a change to one snapshot shows in another:\n%s", diff)
	}
}

func TestAliasesStandForTheirValue(t *testing.T) {
	s := mustParse(t, "version: 1\ntiers:\n  full: &t {model: {concurrency: 3, queue: &q 9}}\n  small: *t\n  tiny: {model: {concurrency: *q, queue: *q}}\n"+
		"routes: [{name: a, ladder: [full, small, tiny]}]\n")
	if s.Tiers[1].Model.Concurrency != 3 || s.Tiers[2].Model.Concurrency != 9 {
		t.Errorf("tiers: %+v %+v", s.Tiers[1].Model, s.Tiers[2].Model)
	}
}

func TestEveryWordOfTheClosedSetsIsTheOneTheFileUses(t *testing.T) {
	for got, want := range map[fmt.Stringer]string{
		CoversFirstContent: "first_content", CoversWhole: "whole", numCovers: "unknown",
		TrustAll: "all", TrustInternal: "internal", numTrusts: "unknown",
		OrderEDF: "edf", numOrders: "unknown", NormalizeWhitespace: "whitespace", NormalizeExact: "exact", numNormalizes: "unknown",
		FailOpen: "open", FailClosed: "closed", numFailures: "unknown",
		SeverityError: "error", SeverityWarning: "warning", numSeverities: "unknown", Severity(0): "unknown",
	} {
		if got.String() != want {
			t.Errorf("%T(%d) = %q, want %q", got, got, got, want)
		}
	}
	for name, words := range map[string][]string{"covers": coversNames[:], "trust": trustNames[:], "order": orderNames[:], "failure": failureNames[:], "normalize": normalizeNames[:], "anonymous": anonymousNames[:], "empty": onEmptyNames[:], "severity": severityNames[1:]} {
		for i, w := range words {
			if w == "" {
				t.Errorf("%s: value %d has no word", name, i)
			}
		}
	}
}

func TestProblemRendersOnOneLine(t *testing.T) {
	for _, tc := range []struct {
		p    Problem
		want string
	}{
		{Problem{File: "a.yaml", Line: 3, Col: 7, Severity: SeverityError, Message: "m", Hint: "h"}, "a.yaml:3:7: error: m (h)"},
		{Problem{File: "a.yaml", Line: 3, Col: 7, Severity: SeverityWarning, Message: "m"}, "a.yaml:3:7: warning: m"},
		{Problem{File: "a.yaml", Severity: SeverityError, Message: "m"}, "a.yaml: error: m"},
	} {
		if got := tc.p.String(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSuggestNamesTheNearestWordOrListsThem(t *testing.T) {
	known := []string{"concurrency", "queue", "order"}
	for _, tc := range []struct{ got, want string }{
		{"concurency", `did you mean "concurrency"?`},
		{"Queue", `did you mean "queue"?`},
		{"qeuue", `did you mean "queue"?`},
		{"odrer", `did you mean "order"?`},
		{"x", "fields: concurrency, queue, order"},
		{"", "fields: concurrency, queue, order"},
	} {
		if got := suggest(tc.got, "fields", known); got != tc.want {
			t.Errorf("suggest(%q) = %q, want %q", tc.got, got, tc.want)
		}
	}
	if got := suggest("x", "fields", nil); got != "" {
		t.Errorf("without words: %q", got)
	}
}

func TestDistanceCountsEdits(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"abc", "abd", 1}} {
		if got, back := distance(tc.a, tc.b), distance(tc.b, tc.a); got != tc.want || back != tc.want {
			t.Errorf("distance(%q, %q) = %d and back %d, want %d", tc.a, tc.b, got, back, tc.want)
		}
	}
}
