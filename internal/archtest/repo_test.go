package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheRepositoryKeepsItsRules(t *testing.T) {
	root := filepath.Join("..", "..")
	sources, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parseTree(moduleName(t, root), sources)
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed.packages) < len(rooms)/2 {
		t.Fatalf("only %d packages found below %s", len(parsed.packages), root)
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, f := range sorted(rule(parsed, rooms)) {
				t.Error(f)
			}
		})
	}
}

func moduleName(t *testing.T, root string) string {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	name, ok := strings.CutPrefix(first, "module ")
	if !ok {
		t.Fatalf("go.mod begins with %q", first)
	}
	return name
}
