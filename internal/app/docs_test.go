package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/policy"
)

// docs are the pages for people.
func docs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 3 {
		t.Fatalf("docs: %v, %v", files, err)
	}
	return append(files, "../../README.md")
}

// codeBlocks are the fenced blocks of a page whose language is lang.
func codeBlocks(t *testing.T, file, lang string) (blocks []string) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var block []string
	in, wanted := false, false
	for line := range strings.Lines(string(src)) {
		switch {
		case !strings.HasPrefix(line, "```"):
			block = append(block, line)
			continue
		case !in:
			wanted = strings.TrimSpace(strings.TrimPrefix(line, "```")) == lang
		case wanted:
			blocks = append(blocks, strings.Join(block, ""))
		}
		in, block = !in, nil
	}
	return blocks
}

// shellEnd is where a command's arguments end: a redirection, a pipe, a comment, the background.
var shellEnd = regexp.MustCompile(` *[>|#&].*`)

func TestEveryCommandInTheDocsParses(t *testing.T) {
	n := 0
	for _, file := range docs(t) {
		for _, block := range append(codeBlocks(t, file, "sh"), codeBlocks(t, file, "")...) {
			for line := range strings.SplitSeq(strings.ReplaceAll(block, "\\\n", " "), "\n") {
				line, ok := strings.CutPrefix(strings.TrimPrefix(line, "$ "), "brownout ")
				if !ok {
					continue
				}
				n++
				var c cli
				parser, err := kong.New(&c, kong.Exit(func(int) {}))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := parser.Parse(strings.Fields(shellEnd.ReplaceAllString(line, ""))); err != nil {
					t.Errorf("%s: brownout %s: %v", filepath.Base(file), line, err)
				}
			}
		}
	}
	if n < 6 {
		t.Errorf("only %d commands found in the docs", n)
	}
}

func TestTheReadmesPoliciesAreTheMinimalExampleAndALadder(t *testing.T) {
	blocks := codeBlocks(t, "../../README.md", "yaml")
	if len(blocks) != 2 {
		t.Fatalf("%d policies in the README, want 2", len(blocks))
	}
	if _, problems := policy.Parse("README.md", []byte("version: 1\n"+blocks[1])); len(problems) > 0 {
		t.Error(problems)
	}
	src, err := os.ReadFile("../../examples/policies/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(src)) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "#") {
			example.WriteString(line)
		}
	}
	if diff := cmp.Diff(example.String(), blocks[0]); diff != "" {
		t.Errorf("the example without comments and the README (-example +README):\n%s", diff)
	}
	if _, problems := policy.Parse("README.md", []byte(blocks[0])); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestTheReadmeNamesEveryEnvoyVersionTested(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	pins, err := os.ReadFile("../../scripts/envoy-versions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\d+\.\d+\.\d+`).FindAllString(string(pins), -1) {
		if !strings.Contains(string(readme), m) {
			t.Errorf("the README does not name Envoy %s", m)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

func TestEveryLinkInTheDocsLeadsSomewhere(t *testing.T) {
	for _, file := range docs(t) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(src), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
	}
}

// keyInPage is a member's name at the start of a value, as pages show JSON.
var keyInPage = regexp.MustCompile(`"([a-z_]+)":`)

// TestTheRunbookShowsEveryMemberOfDebugState: an operator looks them up there.
func TestTheRunbookShowsEveryMemberOfDebugState(t *testing.T) {
	page := ""
	for _, block := range codeBlocks(t, "../../docs/runbook.md", "") {
		if strings.Contains(block, `"policy_hash"`) {
			page = block
		}
	}
	doc, err := json.Marshal(debugState{
		Tiers: []debugTier{{Next: []debugWaiter{{}}}},
		Rungs: []debugRung{{}},
		Seal:  &debugSeal{Ended: map[string]int{"whole": 1, "repaired": 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keys(string(doc)), keys(page)); diff != "" {
		t.Errorf("members of /debug/state and of docs/runbook.md (-state +page):\n%s", diff)
	}
}

// keys are the names of members in a JSON text, sorted, once each.
func keys(text string) []string {
	var names []string
	for _, m := range keyInPage.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
