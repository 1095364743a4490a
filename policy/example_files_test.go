package policy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryExamplePolicyLoadsWithoutAWarningAndFitsTheSchema(t *testing.T) {
	files, err := filepath.Glob("../examples/policies/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	schema := resolvedSchema(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, problems := Parse(filepath.Base(file), src)
			for _, p := range problems {
				t.Error(p)
			}
			if s == nil {
				t.Fatal("no snapshot")
			}
			if err := schema.Validate(asJSON(t, src)); err != nil {
				t.Errorf("schema refuses it: %v", err)
			}
		})
	}
}

func TestMinimalExampleCompilesToTheDefaults(t *testing.T) {
	src, err := os.ReadFile("../examples/policies/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, problems := Parse("minimal.yaml", src)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	budget := Budget{Header: "x-budget-ms", Default: 2500 * time.Millisecond, Max: 10 * time.Second, DefaultCovers: CoversFirstContent}
	want := &Snapshot{
		Hash:     got.Hash,
		Budget:   budget,
		Priority: Priority{Header: "x-priority", Values: map[string]int{"high": 10}, Trust: TrustAll},
		Tiers:    []Tier{{Name: "full", Model: &Model{Concurrency: 4, Queue: 8, Order: OrderEDF}}},
		Routes: []Route{{
			Name:   "chat",
			Match:  Match{Methods: []string{"POST"}, Path: PathMatch{Prefix: "/v1/chat/completions"}},
			Budget: budget, Ladder: []Rung{{Tier: 0}}, Failure: FailOpen,
			Stream: Stream{Watch: true, Seal: true, Idle: 20 * time.Second, Linger: 2 * time.Second, HoldHeaders: true},
			Dwell:  2 * time.Second, RetryBudget: 20,
		}},
		Store: Store{Memory: 256 << 20},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
}
