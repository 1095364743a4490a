package dialect

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// fenced are the blocks of docs/endings.md between fences, without the last line end.
func fenced(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/endings.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for i, part := range strings.Split(string(page), "```") {
		if i%2 == 1 {
			_, block, _ := strings.Cut(part, "\n")
			blocks = append(blocks, strings.TrimRight(block, "\n"))
		}
	}
	return blocks
}

// TestTheDocsShowRealEndings: every example on the page is what the code writes, for a transcript or out of nothing.
func TestTheDocsShowRealEndings(t *testing.T) {
	var real []string
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("transcripts: %v, %v", files, err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, ending, ok := strings.Cut(string(src), "-- ending --\n"); ok {
			ending, label, _ := strings.Cut(ending, "-- label --\n")
			real = append(real, strings.TrimRight(ending, "\n"), strings.TrimRight(label, "\n"))
		}
	}
	for _, id := range IDs() {
		_, all := templates(id)
		for _, tpl := range all {
			body, _ := tpl.Append(nil)
			real = append(real, strings.TrimRight(string(body), "\n"))
		}
		ending := New(id, Options{}).AppendEnding(nil, Ending{Tier: "small", Reason: outcome.DegradedDeadline})
		real = append(real, strings.TrimRight(string(ending), "\n"), string(ErrorBody(id, Capacity, outcome.ShedQueueFull.String())))
	}
	blocks := fenced(t)
	if len(blocks) < len(IDs()) {
		t.Errorf("%d examples on the page, want one for each dialect and the error bodies", len(blocks))
	}
	for _, b := range blocks {
		if !slices.Contains(real, b) {
			t.Errorf("docs/endings.md shows what no test has seen:\n%s", b)
		}
	}
}

// TestTheDocsNameEveryDialect keeps the page complete.
func TestTheDocsNameEveryDialect(t *testing.T) {
	page, err := os.ReadFile("../../docs/endings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range IDs() {
		if !strings.Contains(string(page), "| `"+id.String()+"` |") {
			t.Errorf("docs/endings.md does not say how %s is told", id)
		}
	}
}
