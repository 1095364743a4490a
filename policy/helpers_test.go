package policy

import (
	"encoding/json"
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/policy.md")

// golden compares got with the file at path, or rewrites the file under -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run: go test ./policy -update)", err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs (run: go test ./policy -update, and read the diff)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func resolvedSchema(t testing.TB) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asJSON converts YAML to what encoding/json would decode, the way an editor does: keys are strings.
func asJSON(t testing.TB, src []byte) any {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Load(src, &doc); err != nil {
		t.Fatal(err)
	}
	return nodeAsJSON(t, doc.Content[0])
}

func nodeAsJSON(t testing.TB, n *yaml.Node) any {
	t.Helper()
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[resolve(n.Content[i]).Value] = nodeAsJSON(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := []any{}
		for _, e := range n.Content {
			l = append(l, nodeAsJSON(t, e))
		}
		return l
	}
	if n.ShortTag() == "!!int" {
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return v
		}
	}
	if n.ShortTag() == "!!bool" {
		return n.Value == "true"
	}
	return n.Value
}
