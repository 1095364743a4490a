package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// sdkRow is one way of one client to read an answer: a row of the SDK table.
type sdkRow struct {
	driver  string // which driver runs it
	name    string
	dialect *sdkDialect
	stream  bool
}

var sdkRows = []sdkRow{
	{"python", "openai-python chat create", &sdkChat, true},
	{"python", "openai-python chat .stream", &sdkChat, true},
	{"python", "openai-python chat JSON", &sdkChat, false},
	{"python", "openai-python completions create", &sdkCompletions, true},
	{"python", "openai-python completions JSON", &sdkCompletions, false},
	{"python", "openai-python responses create", &sdkResponses, true},
	{"python", "openai-python responses .stream", &sdkResponses, true},
	{"python", "openai-python responses JSON", &sdkResponses, false},
	{"python", "anthropic-python create", &sdkAnthropic, true},
	{"python", "anthropic-python .stream", &sdkAnthropic, true},
	{"python", "anthropic-python JSON", &sdkAnthropic, false},
	{"node", "openai-node chat create", &sdkChat, true},
	{"node", "openai-node chat .stream", &sdkChat, true},
	{"node", "openai-node chat JSON", &sdkChat, false},
	{"node", "openai-node completions create", &sdkCompletions, true},
	{"node", "openai-node completions JSON", &sdkCompletions, false},
	{"node", "openai-node responses create", &sdkResponses, true},
	{"node", "openai-node responses .stream", &sdkResponses, true},
	{"node", "openai-node responses JSON", &sdkResponses, false},
	{"node", "anthropic-ts create", &sdkAnthropic, true},
	{"node", "anthropic-ts .stream", &sdkAnthropic, true},
	{"node", "anthropic-ts JSON", &sdkAnthropic, false},
	{"node", "ai openai chat streamText", &sdkChat, true},
	{"node", "ai openai responses streamText", &sdkResponses, true},
	{"node", "ai openai-compatible streamText", &sdkChat, true},
	{"node", "ai anthropic streamText", &sdkAnthropic, true},
	{"node", "ai openai chat generateText", &sdkChat, false},
	{"node", "langchain-js stream", &sdkChat, true},
	{"node", "langchain-js invoke", &sdkChat, false},
	{"node", "ollama-js stream", &sdkOllama, true},
	{"node", "ollama-js JSON", &sdkOllama, false},
	{"go", "openai-go chat NewStreaming", &sdkChat, true},
	{"go", "openai-go chat accumulator", &sdkChat, true},
	{"go", "openai-go chat JSON", &sdkChat, false},
	{"go", "openai-go completions NewStreaming", &sdkCompletions, true},
	{"go", "openai-go completions JSON", &sdkCompletions, false},
	{"go", "openai-go responses NewStreaming", &sdkResponses, true},
	{"go", "openai-go responses JSON", &sdkResponses, false},
	{"go", "anthropic-go NewStreaming", &sdkAnthropic, true},
	{"go", "anthropic-go Accumulate", &sdkAnthropic, true},
	{"go", "anthropic-go JSON", &sdkAnthropic, false},
	{"go", "genai-go stream", &sdkGemini, true},
	{"go", "genai-go JSON", &sdkGemini, false},
}

// sdkCase is what a driver is asked for.
type sdkCase struct {
	Row       string            `json:"row"`
	Scenario  string            `json:"scenario"`
	Headers   map[string]string `json:"headers"`
	Tools     bool              `json:"tools"`      // offer the model a tool
	MaxTokens int               `json:"max_tokens"` // most tokens of the answer
	Extra     map[string]any    `json:"extra"`      // further members of an OpenAI or Anthropic request
}

// sdkSeen is what the client of a row saw.
type sdkSeen struct {
	Row      string `json:"row"`
	Scenario string `json:"scenario"`
	Text     string `json:"text"`
	Tool     string `json:"tool"`
	Finish   string `json:"finish"`
	Error    string `json:"error"`
}

func (s sdkSeen) String() string {
	return fmt.Sprintf("%s, %s: text %q, tool %q, finish %q, error %q", s.Row, s.Scenario, s.Text, s.Tool, s.Finish, s.Error)
}

// sdkDrivers installs the drivers and returns their command lines by name.
func sdkDrivers(t *testing.T, names ...string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, name := range names {
		path := getSDK(t, name)
		switch name {
		case "python":
			out[name] = []string{path, filepath.Join(testkit.RepoRoot(t), "e2e", "sdk", "python", "driver.py")}
		case "node":
			out[name] = []string{"node", path}
		default:
			out[name] = []string{path}
		}
	}
	return out
}

// getSDK installs one part of scripts/get_sdk.py, if need be, and returns what to run. A part that cannot be had fails
// the test.
func getSDK(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("python3", filepath.Join(testkit.RepoRoot(t), "scripts", "get_sdk.py"), name)
	var msg bytes.Buffer
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("no %s to test with: %v\n%s", name, err, msg.String())
	}
	return strings.TrimSpace(string(out))
}

// runDriver runs one driver over cases and returns what its clients saw.
func runDriver(ctx context.Context, command []string, base string, cases []sdkCase) ([]sdkSeen, error) {
	in, err := json.Marshal(map[string]any{"base": base, "cases": cases})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, msg bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &msg
	cmd.Env = append(cmd.Environ(), "NO_PROXY=*", "no_proxy=*", "LANGCHAIN_TRACING_V2=false", "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", command, err, msg.String())
	}
	var all []sdkSeen
	lines := bufio.NewScanner(&out)
	for lines.Scan() {
		var s sdkSeen
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%v wrote %q: %w", command, lines.Text(), err)
		}
		all = append(all, s)
	}
	if len(all) != len(cases) {
		return nil, fmt.Errorf("%v: %d results for %d cases\n%s", command, len(all), len(cases), msg.String())
	}
	return all, nil
}

// startDrivers starts all drivers at once over their cases. wait returns what was seen, by row and scenario; it must be
// called once, from the test's goroutine.
func startDrivers(t *testing.T, base string, cases map[string][]sdkCase) (wait func() map[[2]string]sdkSeen) {
	t.Helper()
	type result struct {
		seen []sdkSeen
		err  error
	}
	commands := sdkDrivers(t, slices.Sorted(maps.Keys(cases))...)
	results := make(chan result, len(cases))
	for name, list := range cases {
		go func() {
			seen, err := runDriver(t.Context(), commands[name], base, list)
			results <- result{seen, err}
		}()
	}
	return func() map[[2]string]sdkSeen {
		t.Helper()
		all := map[[2]string]sdkSeen{}
		for range cases {
			r := <-results
			if r.err != nil {
				t.Error(r.err)
			}
			for _, s := range r.seen {
				all[[2]string{s.Row, s.Scenario}] = s
			}
		}
		if t.Failed() {
			t.FailNow()
		}
		return all
	}
}

const sdkPolicy = `version: 1
budget: {default: 2500ms}
tiers:
  full: {model: {concurrency: 64, queue: 64}}
routes:
- name: all
  match: {path: {prefix: /}}
  ladder: [full]
  stream: {idle: 900ms, linger: 300ms}
`

// TestSDKTable runs every client through a real Envoy against an upstream that ends its answers in every way, checks
// the rules, and compares what was seen with docs/sdk.md.
func TestSDKTable(t *testing.T) {
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: sdkPolicy, upstreamAddr: strings.TrimPrefix(u.URL, "http://")})
	cases, want := sdkCases(u)
	seen := startDrivers(t, "http://"+s.envoy.Addr, cases)()
	for _, row := range sdkRows {
		for _, sc := range sdkScenarios {
			checkSDK(t, row, sc, seen[[2]string{row.name, sc.name}])
		}
	}
	log, counted := s.books() // an error in a stream of status 200 is told by brownout alone: only the totals agree
	if a, b := total(log), total(counted); a != b || a != len(seen) {
		t.Errorf("the access log has %d answers, brownout counted %d, of %d", a, b, len(seen))
	}
	for outcome, n := range want {
		if got := s.metric("brownout_requests_total", "outcome", outcome); got != n {
			t.Errorf("outcome %s: %d, want %d", outcome, got, n)
		}
	}
	checkSDKDocs(t, seen)
}

// sdkCases makes the cases of all drivers and the scripts they ask for, and counts the outcomes they should have.
func sdkCases(u *scripted) (cases map[string][]sdkCase, outcomes map[string]int) {
	cases, outcomes = map[string][]sdkCase{}, map[string]int{}
	for _, row := range sdkRows {
		for _, sc := range sdkScenarios {
			script := row.dialect.jsonScript
			if row.stream {
				script = row.dialect.streamScript
			}
			k, v := u.add(row.dialect.scriptName(row.stream, sc.name), script(sc.name))
			c := sdkCase{Row: row.name, Scenario: sc.name, Headers: map[string]string{k: v}, Tools: true, MaxTokens: 64}
			if sc.budget > 0 {
				c.Headers["x-budget-ms"] = fmt.Sprint(sc.budget.Milliseconds())
			}
			cases[row.driver] = append(cases[row.driver], c)
			outcomes[sdkOutcome(row, sc)]++
		}
	}
	return cases, outcomes
}

// sdkOutcome is brownout's outcome of a case. A document has no stalls, it only comes too late; but nobody can tell
// Ollama's documents from its streams at their headers.
func sdkOutcome(row sdkRow, sc sdkScenario) string {
	if !row.stream && sc.name == "stall" && row.dialect != &sdkOllama {
		return "deadline"
	}
	return sc.outcome
}

func total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}
