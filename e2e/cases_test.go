package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// The cases are failures that users of gateways, SDKs and model servers have reported in public, restated as input and
// right behaviour. Each is a subtest of TestCase by its number and runs through a real Envoy. A streamed answer comes
// whole, one byte at a time, and in two at each of its last 64 bytes.

// caseEnv is what the cases share: a stack with a route for each of them, in front of a scripted upstream.
type caseEnv struct {
	wire
	s *stack
	u *scripted
	c *http.Client
}

// caseTest is one test of a case.
type caseTest func(t *testing.T, e *caseEnv, id string)

// cases are the tests of every case, by number. A number may have several.
func cases() map[string][]caseTest {
	all := casesAlone()
	for i, sc := range streamCases() {
		all[sc.id] = append(all[sc.id], func(t *testing.T, e *caseEnv, _ string) { runStreamCase(t, e, sc, fmt.Sprint("stream", i)) })
	}
	for i, jc := range jsonCases() {
		all[jc.id] = append(all[jc.id], func(t *testing.T, e *caseEnv, _ string) { runJSONCase(t, e, jc, fmt.Sprint("json", i)) })
	}
	return all
}

// notCovered are cases without a test, and why.
var notCovered = map[string]string{
	"C40": "keepalives are not built; pings of the upstream's are C28",
	"C62": "two duplex filters in one chain: Envoy before 1.37.1 cuts such answers, whatever this filter does; docs/runbook.md warns of it",
	"C68": "another processor's reset behind ours is a cut like any other (TestEndingsOfAStreamOfUnknownDialect); one in front of ours is not seen from here",
	"C72": "keepalives are not built",
	"C74": "absolute deadlines are not built; relative ones are C75 and C76",
}

// notWhole are parts of cases that no test here shows, and why.
var notWhole = map[string]string{
	"C01": "observing without intervening comes later",
	"C26": "usage shows in the log line of a request alone; TestTranscripts reads c26_last_without_parts.txt",
	"C47": "no frame is edited by this program, so its neighbours cannot be hurt",
	"C61": "no Envoy can be made to deliver a piece twice; a client of the real brownout's socket does",
	"C65": "no panic can be caused from outside; TestAHandlerThatFailsLetsTheRestOfItsStreamPass has them",
	"C69": "the lint that warns of a deadline beyond the route's timeout comes later",
	"C93": "an answer in its reasoning alone is empty; no label says has_reasoning",
}

// TestEveryCaseHasAPlace: every number of the sections A to I has tests, or a reason to have none; and every test that
// a reason names exists.
func TestEveryCaseHasAPlace(t *testing.T) {
	place := map[string]bool{}
	for id := range cases() {
		place[id] = true
	}
	for _, c := range replayCases() {
		place[c.id] = true
	}
	for id := range notCovered {
		if place[id] {
			t.Errorf("%s is said not to be covered, and is", id)
		}
		place[id] = true
	}
	for _, id := range caseNumbers() {
		if !place[id] {
			t.Errorf("%s has no test and no reason", id)
		}
		delete(place, id)
	}
	for id := range place {
		t.Errorf("%s is no case", id)
	}
	known := testNames(t)
	for _, reasons := range []map[string]string{notCovered, notWhole} {
		for id, why := range reasons {
			for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(why, -1) {
				if !known[name] {
					t.Errorf("%s: there is no %s", id, name)
				}
			}
		}
	}
}

// testNames are the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names, files := map[string]bool{}, token.NewFileSet()
	err := filepath.WalkDir(testkit.RepoRoot(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || (d.IsDir() && strings.HasPrefix(d.Name(), ".")) {
			return cmpErr(err, fs.SkipDir)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// cmpErr is the first of two errors that is one.
func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// caseNumbers are the numbers of the sections A to I.
func caseNumbers() []string {
	numbers := []int{1, 2, 4, 6, 7, 8, 9, 10, 11, 13, 14, 15, 18, 19, 20, 21, 23, 24, 25, 26, 28, 29, 30, 32, 33, 34, 35, 37, 39, 40, 41, 42, 43, 45, 46, 47,
		48, 50, 51, 52, 54, 55, 56, 57, 58, 60, 61, 62, 64, 65, 67, 68, 69, 70, 71, 72, 74, 75, 76, 77, 78, 79, 81, 82, 83, 85, 86, 87, 89, 90, 91, 93, 95,
		96, 97, 98, 99, 101, 102, 103, 104, 106, 107}
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = fmt.Sprintf("C%02d", n)
	}
	return out
}

// caseRoutes are the settings of the cases' routes that differ from the others'.
var caseRoutes = map[string]string{
	"C50":         "stream: {idle: 20s}",
	"C18":         "stream: {idle: 1s}",
	"C15-eof":     "stream: {evidence: eof, dialect: openai_responses}",
	"C55-at-once": "stream: {hold_headers: none}",
	"C64-open":    "stream: {seal: false}",
	"C70":         "budget: {default: 300ms}, stream: {idle: 600ms}",
	"C75":         "ladder: [one]",
	"C82-idle":    "stream: {idle: 400ms, seal: false}",
	"C82-waits":   "stream: {idle: 700ms}",
	"C81":         "stream: {first_token: 800ms}",
}

// casePolicy has a route for each case, so that what a case counts is its own.
func casePolicy() string {
	var b strings.Builder
	b.WriteString("version: 1\nbudget: {default: 10s}\ntiers:\n  full: {model: {concurrency: 400, queue: 400}}\n  one: {model: {concurrency: 1, queue: 8}}\nroutes:\n")
	names := append(caseNumbers(), slices.Sorted(maps.Keys(caseRoutes))...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		set := caseRoutes[name]
		if !strings.Contains(set, "ladder:") {
			set += ", ladder: [full]"
		}
		if !strings.Contains(set, "stream:") {
			set += ", stream: {idle: 3s, linger: 300ms}"
		}
		fmt.Fprintf(&b, "- {name: %s, match: {path: {prefix: /%s/}}, %s}\n", strings.ToLower(name), name, strings.TrimLeft(set, ", "))
	}
	return b.String()
}

// startCases starts the stack of the cases on one pair of protocols.
func startCases(t *testing.T, w wire) *caseEnv {
	t.Helper()
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: casePolicy(), scheme: w.upstream, upstreamAddr: address(u)})
	c := newClient(t, w.h2)
	c.Transport.(*http.Transport).MaxIdleConnsPerHost = caseCallers
	return &caseEnv{wire: w, s: s, u: u, c: c}
}

func TestCase(t *testing.T) {
	envs := []*caseEnv{startCases(t, wires[0]), startCases(t, wires[3])}
	t.Cleanup(func() {
		for _, e := range envs {
			e.s.books() // nothing is left over; what bodies say of an outcome no access log can know
			e.checkQuiet(t)
		}
	})
	all := cases()
	for _, id := range caseNumbers() {
		if len(all[id]) == 0 {
			continue // TestEveryCaseHasAPlace has the reason
		}
		t.Run(id, func(t *testing.T) {
			if id != "C56" { // it measures times
				t.Parallel()
			}
			var both sync.WaitGroup
			for _, e := range envs {
				wire := func() {
					t.Run(e.name, func(t *testing.T) {
						for _, test := range all[id] {
							test(t, e, id)
						}
					})
				}
				if id == "C56" {
					wire()
				} else {
					both.Go(wire)
				}
			}
			both.Wait()
		})
	}
}

// checkQuiet: Envoy took every one of brownout's messages, and brownout complained of none of Envoy's.
func (e *caseEnv) checkQuiet(t *testing.T) {
	t.Helper()
	if n := e.s.envoy.Stats("http.front.ext_proc.spurious_msgs_received"); n != 0 {
		t.Errorf("%s: Envoy had no use for %d messages of ours", e.name, n)
	}
	for line := range strings.Lines(e.s.brownout.Log()) {
		if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("%s: brownout logged %s", e.name, line)
		}
	}
}

// post sends body to a case's route.
func (e *caseEnv) post(t *testing.T, route, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.s.envoy.URL("/"+route+path), strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return do(e.c, req)
}

// outcomes waits until n more requests of a route have ended than had at before, and checks that all ended so.
func (e *caseEnv) outcomes(t *testing.T, route, outcome string, before [2]int, n int) {
	t.Helper()
	var now [2]int
	testkit.Eventually(t, 10*time.Second, func() bool {
		now = e.counted(route, outcome)
		return now[0] >= before[0]+n
	}, fmt.Sprintf("%s: %d requests without an outcome", route, n))
	if got := now[1] - before[1]; got != n {
		t.Errorf("%s: %d of %d requests ended as %s; since the start: %v", route, got, n, outcome, e.breakdown(route))
	}
}

// breakdown are the requests of a route that have ended, by outcome.
func (e *caseEnv) breakdown(route string) map[string]int {
	out := map[string]int{}
	for _, m := range e.s.scrape()["brownout_requests_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if n := int(m.GetCounter().GetValue()); n > 0 && l.GetName() == "outcome" && hasLabels(m, []string{"route", strings.ToLower(route)}) {
				out[l.GetValue()] = n
			}
		}
	}
	return out
}

// counted are the requests of a route that have ended, and those of them with an outcome.
func (e *caseEnv) counted(route, outcome string) [2]int {
	f := e.s.scrape()["brownout_requests_total"]
	route = strings.ToLower(route)
	return [2]int{sumMetric(f, "route", route), sumMetric(f, "route", route, "outcome", outcome)}
}

// caseCallers is how many of a case's requests run at once.
const caseCallers = 66 // all of them

// inChunks runs test with every chunking of a stream, several at a time.
func inChunks(in string, test func(name string, sc script)) (n int) {
	ways := chunkings(in)
	turn := make(chan struct{}, max(4, caseCallers>>(len(in)>>17))) // large ones take their time
	var wg sync.WaitGroup
	for i, way := range ways {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			test(fmt.Sprintf("chunking %d of %d (%d pieces)", i, len(ways), len(way.chunks)), way)
		})
	}
	wg.Wait()
	return len(ways)
}

// chunkings are the ways a stream is cut: whole, byte by byte, and in two at each of its last 64 bytes. A pause keeps the
// two apart on the way.
func chunkings(in string) []script {
	single := make([]string, len(in))
	for i := range len(in) {
		single[i] = in[i : i+1]
	}
	out := []script{{chunks: []string{in}}, {chunks: single}}
	for i := max(1, len(in)-64); i < len(in); i++ {
		out = append(out, script{chunks: []string{in[:i], in[i:]}, gap: 3 * time.Millisecond})
	}
	return out
}

func runStreamCase(t *testing.T, e *caseEnv, sc streamCase, name string) {
	t.Helper()
	sc = sc.filled()
	header := map[string]string{"content-type": sc.kind}
	maps.Copy(header, sc.header)
	before := e.counted(sc.id, sc.outcome)
	n := inChunks(sc.in, func(way string, s script) {
		s.header, s.end = header, sc.end
		k, v := e.u.add(sc.id+name+way, s)
		a := e.post(t, sc.id, sc.path, "{}", append([]string{k, v}, sc.ask...)...)
		if sc.end == hang && a.body == sc.out+"\n" {
			a.body = sc.out // the seal's end was late; then an empty line, which readers skip, goes with ours
		}
		if a.status != sc.status || a.err != nil || a.body != sc.out {
			t.Errorf("%s: %d, %v\n got %q\nwant %q", way, a.status, a.err, a.body, sc.out)
		}
	})
	e.outcomes(t, sc.id, sc.outcome, before, n)
	checkOurs(t, sc.in, sc.out)
}

// checkOurs: what we add to a stream has no field that clients stumble over, and no frame without data.
func checkOurs(t *testing.T, in, out string) {
	t.Helper()
	ours := out[commonPrefix(in, out):]
	for frame := range strings.SplitSeq(strings.TrimSuffix(ours, "\n\n"), "\n\n") {
		if regexp.MustCompile(`(?m)^(retry|id)\b|^data: ?$`).MatchString(frame) {
			t.Errorf("an ending of ours has the frame %q", frame)
		}
		if strings.HasPrefix(frame, "event:") && !strings.Contains(frame, "\ndata: {") {
			t.Errorf("an ending of ours has a frame without data: %q", frame)
		}
	}
}

// commonPrefix is the length of the whole lines two texts begin with.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return strings.LastIndexByte(b[:n], '\n') + 1
}

func runJSONCase(t *testing.T, e *caseEnv, jc jsonCase, name string) {
	t.Helper()
	if jc.path == "" {
		jc.path = chatURL
	}
	if jc.request == "" {
		jc.request = "{}"
	}
	header := map[string]string{"content-type": "application/json"}
	maps.Copy(header, jc.header)
	before := e.counted(jc.id, jc.outcome)
	status := jc.status
	if status == 0 {
		status = http.StatusOK
	}
	k, v := e.u.add(jc.id+name, script{status: jc.status, header: header, chunks: []string{jc.body}})
	a := e.post(t, jc.id, jc.path, jc.request, k, v)
	if a.status != status || a.err != nil || a.body != jc.body {
		t.Errorf("got %v, want the upstream's answer", a)
	}
	if got := a.header.Get("content-length"); got != "" && got != fmt.Sprint(len(jc.body)) {
		t.Errorf("content-length %s of %d bytes", got, len(jc.body))
	}
	if jc.check != nil {
		jc.check(t, a)
	}
	if n := e.u.count(e.u.calls, v); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
	e.outcomes(t, jc.id, jc.outcome, before, 1)
}
