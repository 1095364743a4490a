package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// FuzzLoad checks of any text: it is read the same way twice; every problem names the file and a place and fits
// on one line; there is a snapshot exactly if no problem is an error; and a snapshot keeps every promise its
// types make, matches what its routes say, and comes from a text the JSON Schema accepts too.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/problems/*.yaml", "../examples/policies/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("seeds %s: %v", pattern, err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	schema := resolvedSchema(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		s, problems := Parse("fuzz.yaml", src)
		again, sameProblems := Parse("fuzz.yaml", src)
		if diff := cmp.Diff(s, again) + cmp.Diff(problems, sameProblems); diff != "" {
			t.Fatalf("two readings differ:\n%s", diff)
		}
		checkProblems(t, src, problems)
		if (s == nil) != HasErrors(problems) {
			t.Fatalf("snapshot %v with problems %v", s, problems)
		}
		if s == nil {
			return
		}
		checkSnapshot(t, s)
		var doc yaml.Node
		if err := yaml.Load(src, &doc); err != nil {
			t.Fatalf("accepted text is no YAML: %v", err)
		}
		if err := schema.Validate(nodeAsJSON(t, doc.Content[0])); err != nil {
			t.Fatalf("schema refuses what Load accepts: %v", err)
		}
	})
}

func checkProblems(t *testing.T, src []byte, problems []Problem) {
	t.Helper()
	if len(problems) > 2*(maxProblems+1) {
		t.Errorf("%d problems", len(problems))
	}
	lines := strings.Count(string(src), "\n") + strings.Count(string(src), "\r") +
		strings.Count(string(src), "\u0085") + strings.Count(string(src), "\u2028") + strings.Count(string(src), "\u2029") + 2
	for _, p := range problems {
		if p.File != "fuzz.yaml" || p.Line < 1 || p.Line > lines || p.Col < 1 || p.Message == "" || p.Severity == 0 {
			t.Errorf("problem lacks something: %+v", p)
		}
		if text := p.String(); strings.ContainsAny(text, "\n\r\x1b") || len(text) > 4096 {
			t.Errorf("problem does not fit on a line: %q", text)
		}
	}
}

// checkSnapshot checks the invariants the types of snapshot.go state.
func checkSnapshot(t *testing.T, s *Snapshot) {
	t.Helper()
	if len(s.Hash) != 16 || len(s.Tiers) == 0 || len(s.Tiers) > maxTiers || len(s.Routes) == 0 || len(s.Routes) > maxRoutes {
		t.Errorf("hash %q, %d tiers, %d routes", s.Hash, len(s.Tiers), len(s.Routes))
	}
	if s.Budget.Header == s.Priority.Header || s.Priority.Header != strings.ToLower(s.Priority.Header) {
		t.Errorf("headers %q and %q", s.Budget.Header, s.Priority.Header)
	}
	checkBudget(t, s.Budget)
	names := map[string]bool{}
	for _, tier := range s.Tiers {
		if names[tier.Name] || !nameForm.MatchString(tier.Name) || slices.Contains(reservedTiers(), tier.Name) {
			t.Errorf("tier name %q", tier.Name)
		}
		names[tier.Name] = true
		checkTier(t, tier)
	}
	checkStore(t, s.Store)
	clear(names)
	for _, r := range s.Routes {
		if names[r.Name] || !nameForm.MatchString(r.Name) {
			t.Errorf("route name %q", r.Name)
		}
		names[r.Name] = true
		checkRoute(t, s, r)
	}
}

func checkTier(t *testing.T, tier Tier) {
	t.Helper()
	kinds := 0
	if m := tier.Model; m != nil {
		kinds++
		if m.Concurrency < 1 || m.Concurrency > maxConcurrency || m.Queue < 0 || m.Queue > maxQueue || m.Order >= numOrders || len(m.Rewrite.Headers) > maxSetHeaders {
			t.Errorf("tier %s: %+v", tier.Name, m)
		}
		for _, h := range m.Rewrite.Headers {
			if !headerForm.MatchString(h.Name) || h.Name != strings.ToLower(h.Name) || isReserved(h.Name) || strings.ContainsAny(h.Value, "\r\n\x00") || h.Value == "" {
				t.Errorf("tier %s sets %+v", tier.Name, h)
			}
		}
	}
	if c := tier.Cache; c != nil {
		kinds++
		if c.StaleFor < 0 || c.StaleFor > maxKept {
			t.Errorf("tier %s: %+v", tier.Name, c)
		}
	}
	if p := tier.Template; p != nil {
		kinds++
		if strings.TrimSpace(p.Text) == "" || len(p.Text) > maxTemplate {
			t.Errorf("tier %s: a text of %d bytes", tier.Name, len(p.Text))
		}
	}
	if kinds != 1 {
		t.Errorf("tier %s is of %d kinds", tier.Name, kinds)
	}
}

func checkStore(t *testing.T, s Store) {
	t.Helper()
	if s.Memory < minStoreMemory || s.Memory > maxStoreMemory {
		t.Errorf("store of %d bytes", s.Memory)
	}
	if r := s.Redis; r != nil && (r.Address == "" || r.Prefix == "" || r.Timeout <= 0 || r.Timeout > maxStoreTimeout || s.SecretFile == "" || (r.Username != "" && r.PasswordFile == "")) {
		t.Errorf("redis %+v, secret %q", r, s.SecretFile)
	}
}

// checkKept checks what a route says about answers that are given again.
func checkKept(t *testing.T, r Route) {
	t.Helper()
	if c := r.Cache; c != nil && (c.TTL < minKept || c.TTL > maxKept || c.Normalize >= numNormalizes || slices.Contains(c.Ignore, "stream") ||
		len(c.Ignore) > maxIgnored || len(c.Partition) > maxPartedBy || !r.Stream.Watch) {
		t.Errorf("route %s: cache %+v", r.Name, c)
	}
	if i := r.Idempotency; i != nil && (i.TTL < minKept || i.TTL > maxKept || i.Header == "" || i.Header != strings.ToLower(i.Header) || i.Header == r.Budget.Header || !r.Stream.Watch) {
		t.Errorf("route %s: idempotency %+v", r.Name, i)
	}
	if r.Retries < 0 || r.Retries > 1 || r.Dwell < 0 || r.Dwell > maxDwell {
		t.Errorf("route %s: retries %d, dwell %v", r.Name, r.Retries, r.Dwell)
	}
}

func checkBudget(t *testing.T, b Budget) {
	t.Helper()
	if b.Header == "" || b.Header != strings.ToLower(b.Header) || b.Default < minBudget || b.Default > b.Max || b.Max > maxBudget || b.DefaultCovers >= numCovers {
		t.Errorf("budget %+v", b)
	}
}

func checkRoute(t *testing.T, s *Snapshot, r Route) {
	t.Helper()
	checkBudget(t, r.Budget)
	if r.Budget.Header != s.Budget.Header || r.Failure >= numFailures {
		t.Errorf("route %s: %+v", r.Name, r)
	}
	checkKept(t, r)
	seen, models := map[int]bool{}, 0
	for i, rung := range r.Ladder {
		if rung.Tier < 0 || rung.Tier >= len(s.Tiers) || seen[rung.Tier] || rung.WaitOver < 0 || (rung.WaitOver > 0 && !rung.HasWaitOver) || (rung.HasWaitOver && i == 0) {
			t.Errorf("route %s: ladder %v", r.Name, r.Ladder)
		}
		seen[rung.Tier] = true
		if m := s.Tiers[rung.Tier].Model; m != nil {
			models++
			if m.Rewrite.Path != "" && r.Match.Path == (PathMatch{}) {
				t.Errorf("route %s: a rewrite of any path", r.Name)
			}
		}
	}
	if models == 0 {
		t.Errorf("route %s: no model tier in %v", r.Name, r.Ladder)
	}
	for reason, status := range r.ShedStatus {
		if !slices.Contains(ShedReasons(), reason) || (status != 503 && status != 429) {
			t.Errorf("route %s: shed %s with %d", r.Name, reason, status)
		}
	}
	if r.Match.Path.Prefix != "" && r.Match.Path.Exact != "" {
		t.Errorf("route %s: both prefix and exact", r.Name)
	}
	checkStream(t, r)
	checkReachable(t, s, r)
}

func checkStream(t *testing.T, r Route) {
	t.Helper()
	if !r.Stream.Watch {
		if r.Stream != (Stream{}) {
			t.Errorf("route %s: not watched, but %+v", r.Name, r.Stream)
		}
		return
	}
	for _, d := range []time.Duration{r.Stream.Idle, r.Stream.FirstToken, r.Stream.Max} {
		if d < 0 || d > maxStreamTimer || (d > 0 && d < minStreamTimer) {
			t.Errorf("route %s: a timer of %v in %+v", r.Name, d, r.Stream)
		}
	}
	known := r.Stream.Dialect == "" || slices.Contains(Dialects(), r.Stream.Dialect)
	if r.Stream.Linger < minStreamTimer || r.Stream.Linger > maxLinger || !known || r.Stream.Terminal >= numTerminals {
		t.Errorf("route %s: %+v", r.Name, r.Stream)
	}
}

// checkReachable sends the route a request made from its own match: some route takes it, and never a later one.
func checkReachable(t *testing.T, s *Snapshot, r Route) {
	t.Helper()
	method, path := "GET", r.Match.Path.Prefix+r.Match.Path.Exact
	if len(r.Match.Methods) > 0 {
		method = r.Match.Methods[0]
	}
	got, ok := s.Match(method, path+"?q=1")
	if !ok || slices.IndexFunc(s.Routes, func(o Route) bool { return o.Name == got.Name }) > slices.IndexFunc(s.Routes, func(o Route) bool { return o.Name == r.Name }) {
		t.Errorf("%s %s goes to %v, not to %s or before", method, path, got, r.Name)
	}
}
