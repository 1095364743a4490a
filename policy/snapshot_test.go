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
  zeta: {model: {concurrency: {total: 12, replicas: 3}, queue: 0, order: edf}}
  alpha: {model: {concurrency: 2, queue: 7}}
routes:
- name: chat
  match: {method: [POST, PUT], path: {exact: /v1/chat}}
  ladder: [alpha, zeta]
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
			{Name: "zeta", Model: &Model{Concurrency: 4, Queue: 0, Order: OrderEDF}},
			{Name: "alpha", Model: &Model{Concurrency: 2, Queue: 7, Order: OrderEDF}},
		},
		Routes: []Route{{
			Name: "chat", Match: Match{Methods: []string{"POST", "PUT"}, Path: PathMatch{Exact: "/v1/chat"}},
			Budget:  Budget{Header: "x-wait", Default: 2 * time.Second, Max: time.Minute, DefaultCovers: CoversFirstContent},
			Ladder:  []Rung{{Tier: 1}, {Tier: 0}},
			Failure: FailClosed, ShedStatus: map[string]int{"queue_full": 429, "memory": 503},
			Stream: Stream{Watch: true, Idle: 30 * time.Second, Linger: 500 * time.Millisecond, FirstToken: 8 * time.Second, Max: 10 * time.Minute,
				Dialect: "openai_chat", EvidenceEOF: true, Terminal: TerminalError},
		}, {
			Name: "rest", Match: Match{Methods: []string{"GET"}}, Budget: budget, Ladder: []Rung{{Tier: 0}}, Failure: FailOpen,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
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
		"routes: [{name: a, match: {method: GET}, ladder: [full], shed: {status: {memory: 429}}}]\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	first, _ := f.Compile()
	second, _ := f.Compile()
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
		OrderEDF: "edf", numOrders: "unknown",
		FailOpen: "open", FailClosed: "closed", numFailures: "unknown",
		SeverityError: "error", SeverityWarning: "warning", numSeverities: "unknown", Severity(0): "unknown",
	} {
		if got.String() != want {
			t.Errorf("%T(%d) = %q, want %q", got, got, got, want)
		}
	}
	for name, words := range map[string][]string{"covers": coversNames[:], "trust": trustNames[:], "order": orderNames[:], "failure": failureNames[:], "severity": severityNames[1:]} {
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
