package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProblemsOfBadFiles compares what is said about each file of testdata/problems with the golden text beside
// it. Rewrite with -update; commit a change only if the new text serves the author of the file better.
func TestProblemsOfBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, problems := Parse(filepath.Base(file), src)
			var got strings.Builder
			for _, p := range problems {
				fmt.Fprintln(&got, p)
			}
			if warningsOnly := strings.HasPrefix(name, "warn_"); (s != nil) != warningsOnly {
				t.Errorf("snapshot %v, want one: %v", s, warningsOnly)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", []byte(got.String()))
		})
	}
}

func TestTextThatIsNoPolicyIsRefusedWithItsPlace(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"no bytes", "", "p:1:1: error: the file is empty (a policy begins with version: 1)"},
		{"not UTF-8", "version: 1\nbudget: \xff\n", "p:2:9: error: byte 0xff is not UTF-8 (a policy is UTF-8 text)"},
		{"UTF-16", "\xff\xfev\x00", "p:1:1: error: byte 0xff is not UTF-8 (a policy is UTF-8 text)"},
		{"a control character after other scripts", "é: \x01", "p:1:4: error: control character 0x01 (a policy is UTF-8 text)"},
		{"one byte too many", strings.Repeat("#", MaxBytes+1), "p:1:1: error: the file has 1048577 bytes (at most 1048576)"},
		{"a broken second document", "version: 1\n---\n[\n", "p:4:1: error: not YAML: did not find expected node content (while parsing a flow node that begins at 4:1)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, problems := Parse("p", []byte(tc.src))
			if s != nil || len(problems) == 0 {
				t.Fatalf("snapshot %v, problems %v", s, problems)
			}
			for _, p := range problems {
				if p.String() == tc.want {
					return
				}
			}
			t.Errorf("got %v\nwant %s", problems, tc.want)
		})
	}
}

func TestManyProblemsAreCutAndStillErrors(t *testing.T) {
	var src strings.Builder
	src.WriteString("version: 1\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\nroutes:\n")
	for i := range 200 {
		fmt.Fprintf(&src, "- {name: r%d, match: {path: {prefix: /%d}}, ladder: [nobody]}\n", i, i+1000)
	}
	s, problems := Parse("p", []byte(src.String()))
	if s != nil || len(problems) != maxProblems+1 {
		t.Fatalf("snapshot %v, %d problems", s, len(problems))
	}
	if last := problems[maxProblems]; last.Severity != SeverityError || !strings.Contains(last.Message, "too many problems") {
		t.Errorf("last problem: %v", last)
	}
}

func TestManyWarningsStillGiveASnapshot(t *testing.T) {
	var src strings.Builder
	src.WriteString("version: 1\nroutes: [{name: a, ladder: [t0]}]\ntiers:\n")
	for i := range maxTiers {
		fmt.Fprintf(&src, "  t%d: {model: {concurrency: 1, queue: 0}}\n", i)
	}
	s, problems := Parse("p", []byte(src.String()))
	if s == nil || HasErrors(problems) || len(problems) != maxProblems+1 {
		t.Fatalf("snapshot %v, %d problems, errors %v", s, len(problems), HasErrors(problems))
	}
}

func TestListsAndMapsAreBounded(t *testing.T) {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	const tier, route = "tiers: {full: {model: {concurrency: 1, queue: 0}}}\n", "routes: [{name: a, ladder: [full]}]\n"
	for _, tc := range []struct{ name, src, want string }{
		{"tiers", route + "tiers:\n" + lines(257, " t%d: {model: {concurrency: 1, queue: 0}}\n"), "257 tiers are too many"},
		{"routes", tier + "routes:\n" + lines(257, "- {name: r%d, ladder: [full]}\n"), "257 elements are too many"},
		{"keys", tier + route + lines(1001, "k%d: 1\n"), "more than 1000 keys"},
		{"classes", tier + route + "priority: {map: {" + lines(33, "c%d: 1, ") + "}}\n", "33 header values are too many"},
		{"methods", tier + "routes: [{name: a, ladder: [full], match: {method: [" + lines(33, "M%d, ") + "]}}]\n", "33 elements are too many"},
		{"ladder", tier + "routes: [{name: a, ladder: [" + lines(257, "t%d, ") + "]}]\n", "257 elements are too many"},
		{"set headers", route + "tiers: {full: {model: {concurrency: 1, queue: 0, rewrite: {headers: {" + lines(33, "h%d: x, ") + "}}}}}\n", "33 headers are too many"},
		{"header value", route + "tiers: {full: {model: {concurrency: 1, queue: 0, rewrite: {headers: {h: " + strings.Repeat("v", 1025) + "}}}}}\n", "has 1025 characters"},
		{"ignored members", tier + "routes: [{name: a, ladder: [full], cache: {ignore: [" + lines(65, "m%d, ") + "]}}]\n", "65 elements are too many"},
		{"parting headers", tier + "routes: [{name: a, ladder: [full], cache: {partition: [" + lines(17, "h%d, ") + "]}}]\n", "17 elements are too many"},
		{"template", route + "tiers: {full: {template: {text: " + strings.Repeat("é", 32<<10) + "x}}}\n", "the text has 65537 bytes"},
		{"path", tier + "routes: [{name: a, ladder: [full], match: {path: {exact: /" + strings.Repeat("a", 2048) + "}}}]\n", "at most 2048 characters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, problems := Parse("p", []byte("version: 1\n"+tc.src))
			if s != nil || !strings.Contains(fmt.Sprint(problems), tc.want) {
				t.Errorf("snapshot %v, problems %v, want %q", s, problems, tc.want)
			}
		})
	}
}

func TestProblemsOfLoadAndCompileComeTogetherInFileOrder(t *testing.T) {
	src := "version: 1\ntiers: {full: {model: {concurrency: 1, queue: 0}}}\nroutes:\n" +
		"- {name: a, ladder: [nobody]}\n- {name: b, failure: half, ladder: [full]}\n"
	_, problems := Parse("p", []byte(src))
	if len(problems) != 3 || problems[0].Line != 4 || problems[1].Line != 5 {
		t.Errorf("problems: %v", problems)
	}
}
