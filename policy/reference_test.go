package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The generated part of docs/policy.md stands between these lines; the rest is written by hand.
const (
	generatedBegin = "<!-- begin generated: go test ./policy -update -->\n"
	generatedEnd   = "<!-- end generated -->\n"
)

func TestReferenceInDocsIsCurrent(t *testing.T) {
	const path = "../docs/policy.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), generatedBegin)
	_, after, ok2 := strings.Cut(rest, generatedEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", path, generatedBegin, generatedEnd)
	}
	golden(t, path, []byte(before+generatedBegin+reference()+generatedEnd+after))
}

func TestSchemaIsCurrent(t *testing.T) { golden(t, "testdata/schema.json", Schema()) }

func TestSchemaRefusesWhatLoadRefusesByForm(t *testing.T) {
	schema := resolvedSchema(t)
	for _, file := range []string{"missing_everything", "missing_inner", "unknown_fields", "not_yet", "wrong_types", "numbers", "shed", "matches", "names", "classes", "streams", "kinds", "rewrites", "rungs", "keeping", "stores", "stores_empty"} {
		src, err := os.ReadFile("testdata/problems/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(asJSON(t, src)); err == nil {
			t.Errorf("schema accepts %s.yaml", file)
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	var walk func(path string, fields []doc)
	walk = func(path string, fields []doc) {
		for _, f := range fields {
			if f.meaning == "" || f.typ == "" || f.schema == nil || (f.required && f.def != "") {
				t.Errorf("%s%s: %+v", path, f.key, f)
			}
			walk(path+f.key+f.under, f.fields)
		}
	}
	walk("", fileFields().shape().fields)
}

// reference renders the field tables as Markdown: one table per mapping, in file order.
func reference() string {
	var b strings.Builder
	section(&b, "", fileFields().shape().fields)
	return b.String()
}

func section(b *strings.Builder, path string, fields []doc) {
	title := "The file"
	if path != "" {
		title = "`" + strings.TrimSuffix(path, ".") + "`"
	}
	fmt.Fprintf(b, "\n### %s\n\n| field | what to write | default | limits | meaning |\n|---|---|---|---|---|\n", title)
	for _, f := range fields {
		def := "none"
		switch {
		case f.required:
			def = "**required**"
		case f.def != "":
			def = codeUnlessWords(f.def)
		case f.fields != nil:
			def = "see below"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.key, cell(f.typ), def, cell(f.limits), cell(f.meaning))
	}
	for _, f := range fields {
		if f.fields != nil {
			section(b, path+f.key+f.under, f.fields)
		}
	}
}

// codeUnlessWords sets a default as code, unless it is a phrase such as "the file's".
func codeUnlessWords(s string) string {
	if strings.Contains(s, " ") && !strings.HasPrefix(s, "{") {
		return s
	}
	return "`" + s + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
