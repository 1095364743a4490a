package archtest

import (
	"strings"
	"testing"
)

// testRooms are the places of the packages the cases below are made of.
var testRooms = map[string]room{
	"low":             {level: 0, pure: true},
	"low2":            {level: 0, pure: true},
	"locked":          {level: 1, pure: true, locks: true},
	"high":            {level: 2},
	"extproc":         {level: 3},
	"app":             {level: 4, edge: true},
	"internal/stub":   {kind: outsider},
	"loadgen":         {kind: outsider},
	"internal/helper": {kind: testOnly},
}

// broke is one source that breaks one rule, or keeps it when want is empty.
type broke struct {
	name string
	file string // its folder is the package
	src  string
	want string // part of the finding
}

// run applies one rule to each case alone.
func run(t *testing.T, rule string, cases []broke) {
	t.Helper()
	check, ok := rules[rule]
	if !ok {
		t.Fatalf("no rule %q", rule)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			parsed, err := parseTree("m", map[string]string{c.file: c.src})
			if err != nil {
				t.Fatal(err)
			}
			found := check(parsed, testRooms)
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("unexpected findings: %v", found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0].String(), c.want) || !strings.HasPrefix(found[0].at, c.file+":") {
				t.Errorf("findings %v, want one in %s that says %q", found, c.file, c.want)
			}
		})
	}
}

func TestImportsUpwardsOrSidewardsAreFound(t *testing.T) {
	imports := func(p string) string { return "package p\nimport _ \"" + p + "\"\n" }
	run(t, "imports point one way", []broke{
		{"downwards", "high/a.go", imports("m/low"), ""},
		{"upwards", "low/a.go", imports("m/high"), "low (level 0) may import lower levels only, high has level 2"},
		{"same level", "low/a.go", imports("m/low2"), "low2 has level 0"},
		{"a test may look anywhere", "low/a_test.go", imports("m/high"), ""},
		{"outsider into the core", "internal/stub/a.go", imports("m/low"), "judges brownout from outside"},
		{"outsider to outsider", "loadgen/a.go", imports("m/internal/stub"), ""},
		{"test helper in production", "high/a.go", imports("m/internal/helper"), "test files only"},
		{"test helper in a test", "high/a_test.go", imports("m/internal/helper"), ""},
		{"outsider in the core", "high/a.go", imports("m/loadgen"), "wired up by internal/app only"},
		{"outsider in app", "app/a.go", imports("m/loadgen"), ""},
		{"another module of a like name", "low/a.go", imports("mm/high"), ""},
	})
}

func TestForeignImportsAreFound(t *testing.T) {
	imports := func(p string) string { return "package p\nimport _ \"" + p + "\"\n" }
	const extProcService = "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	run(t, "imports from elsewhere", []broke{
		{"Envoy's services in extproc", "extproc/a.go", imports(extProcService), ""},
		{"Envoy's services elsewhere", "high/a.go", imports(extProcService), "only extproc speaks"},
		{"Envoy's services in a test helper", "internal/helper/a.go", imports(extProcService), ""},
		{"Envoy's configuration", "high/a.go", imports("github.com/envoyproxy/go-control-plane/envoy/config/core/v3"), ""},
		{"standard logger", "app/a.go", imports("log"), "take a *slog.Logger"},
		{"slog in a pure room", "low/a.go", imports("log/slog"), "its caller logs"},
		{"slog in a shell", "extproc/a.go", imports("log/slog"), ""},
		{"lock in a pure room", "low/a.go", imports("sync"), "needs no lock"},
		{"lock in the limiter", "locked/a.go", imports("sync"), ""},
		{"proto in a pure room", "locked/a.go", imports("google.golang.org/protobuf/proto"), "no wire format"},
		{"grpc in a pure room", "low/a.go", imports("google.golang.org/grpc"), "no transport"},
		{"prometheus in a pure room", "low/a.go", imports("github.com/prometheus/client_golang/prometheus"), "counts nothing itself"},
	})
}

func TestBannedCallsAreFound(t *testing.T) {
	body := func(imports, stmt string) string {
		var b strings.Builder
		b.WriteString("package p\n")
		for _, p := range strings.Fields(imports) {
			b.WriteString("import \"" + p + "\"\n")
		}
		return b.String() + "func f() {\n" + stmt + "\n}\n"
	}
	run(t, "banned calls", []broke{
		{"clock in a pure room", "low/a.go", body("time", "_ = time.Now()"), "take `now time.Time`"},
		{"clock by another name", "low/a.go", "package p\nimport clock \"time\"\nvar now = clock.Now\n", "take `now time.Time`"},
		{"timer in the limiter", "locked/a.go", body("time", "time.AfterFunc(1, nil)"), "take `now time.Time`"},
		{"clock in a shell", "extproc/a.go", body("time", "_ = time.Now()"), ""},
		{"duration arithmetic in a pure room", "low/a.go", body("time", "_ = time.Second"), ""},
		{"a local variable called time", "low/a.go", "package p\nfunc f(time interface{ Now() int }) { time.Now() }\n", ""},
		{"time.After", "app/a.go", body("time", "<-time.After(1)"), "cannot be stopped"},
		{"time.After in a test", "app/a_test.go", body("time", "<-time.After(1)"), ""},
		{"goroutine in a pure room", "locked/a.go", body("", "go f()"), "starts no goroutine"},
		{"goroutine in a shell", "extproc/a.go", body("", "go f()"), ""},
		{"context below app", "extproc/a.go", body("context", "_ = context.Background()"), "take one"},
		{"context.TODO below app", "high/a.go", body("context", "_ = context.TODO()"), "take one"},
		{"context in app", "app/a.go", body("context", "_ = context.Background()"), ""},
		{"panic", "app/a.go", body("", `panic("x")`), "return an error"},
		{"panic in a test", "app/a_test.go", body("", `panic("x")`), ""},
		{"abort in the stub", "internal/stub/a.go", body("net/http", "panic(http.ErrAbortHandler)"), ""},
		{"abort elsewhere", "extproc/a.go", body("net/http", "panic(http.ErrAbortHandler)"), "return an error"},
		{"another panic in the stub", "internal/stub/a.go", body("", `panic("x")`), "return an error"},
		{"init", "app/a.go", "package p\nfunc init() {}\n", "construct explicitly"},
		{"a method called init", "app/a.go", "package p\ntype t int\nfunc (t) init() {}\n", ""},
		{"default registry", "extproc/a.go", body("github.com/prometheus/client_golang/prometheus", "prometheus.MustRegister(nil)"), "take a prometheus.Registerer"},
		{"default logger", "extproc/a.go", body("log/slog", `slog.Info("x")`), "take a *slog.Logger"},
		{"own logger", "extproc/a.go", "package p\nimport \"log/slog\"\nfunc f(l *slog.Logger) { l.Info(\"x\") }\n", ""},
		{"JSON by fmt", "app/a.go", body("fmt", "_ = fmt.Sprintf(`{\"a\":%q}`, 1)"), "does not escape"},
		{"JSON by Fprintf", "internal/stub/a.go", body("fmt", "fmt.Fprintf(nil, `{\"a\":\"%s\"}`, 1)"), "does not escape"},
		{"fixed JSON", "app/a.go", body("fmt", "_ = fmt.Sprint(`{\"a\":1}`)"), ""},
		{"braces of a message", "app/a.go", body("fmt", `_ = fmt.Sprintf("{%d}", 1)`), ""},
	})
}

func TestPackageVariablesThatCanChangeAreFound(t *testing.T) {
	run(t, "package-level variables are fixed", []broke{
		{"error", "high/a.go", "package p\nimport \"errors\"\nvar errX = errors.New(\"x\")\n", ""},
		{"table", "high/a.go", "package p\nvar names = [...]string{\"a\"}\n", ""},
		{"expression", "high/a.go", "package p\nimport \"regexp\"\nvar re = regexp.MustCompile(`x`)\n", ""},
		{"interface check", "high/a.go", "package p\nvar _ interface{} = (*int)(nil)\n", ""},
		{"embedded file", "high/a.go", "package p\nimport _ \"embed\"\n\n//go:embed x\nvar x string\n", ""},
		{"counter", "high/a.go", "package p\nvar n int\n", "var n is not"},
		{"made map", "high/a.go", "package p\nvar m = make(map[string]int)\n", "var m is not"},
		{"pointer", "high/a.go", "package p\nvar p0 = &struct{}{}\n", "var p0 is not"},
		{"in a test", "high/a_test.go", "package p\nvar n int\n", ""},
		{"local", "high/a.go", "package p\nfunc f() { var n int; _ = n }\n", ""},
	})
}

func TestLongFunctionsAndFilesAreFound(t *testing.T) {
	function := func(lines int) string {
		return "package p\nfunc f() {\n" + strings.Repeat("\n", lines-2) + "}\n"
	}
	run(t, "functions and files stay short", []broke{
		{"function at the bound", "high/a.go", function(maxFuncLines), ""},
		{"function above the bound", "high/a.go", function(maxFuncLines + 1), "f has 71 lines"},
		{"function of a test", "high/a_test.go", function(maxFuncLines + 1), ""},
		{"generated function", "high/a.go", "// Code generated by x. DO NOT EDIT.\n\n" + function(maxFuncLines+1), ""},
		{"file at the bound", "high/a.go", "package p\n" + strings.Repeat("\n", maxFileLines-1), ""},
	})
	parsed, err := parseTree("m", map[string]string{"high/a.go": "package p\n" + strings.Repeat("\n", maxFileLines)})
	if err != nil {
		t.Fatal(err)
	}
	if found := checkLengths(parsed, testRooms); len(found) != 1 || !strings.Contains(found[0].rule, "501 lines") {
		t.Errorf("a file of 501 lines: %v", found)
	}
}

func TestPackageCommentsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		sources map[string]string
		want    string
	}{
		"one":              {map[string]string{"low/a.go": "// Package p is.\npackage p\n", "low/b.go": "package p\n"}, ""},
		"none":             {map[string]string{"low/a.go": "package p\n"}, "no package comment"},
		"only a directive": {map[string]string{"low/a.go": "//go:build linux\npackage p\n"}, "no package comment"},
		"only in a test":   {map[string]string{"low/a.go": "package p\n", "low/a_test.go": "// Package p is.\npackage p\n"}, "no package comment"},
		"two":              {map[string]string{"low/a.go": "// Package p is.\npackage p\n", "low/b.go": "// Package p was.\npackage p\n"}, "low/a.go and low/b.go: keep one"},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := parseTree("m", c.sources)
			if err != nil {
				t.Fatal(err)
			}
			found := checkPackageComments(parsed, nil)
			if c.want == "" && len(found) == 0 {
				return
			}
			if c.want == "" || len(found) != 1 || !strings.Contains(found[0].String(), c.want) {
				t.Errorf("findings %v, want %q", found, c.want)
			}
		})
	}
}

func TestAnUnknownPackageAndAStaleLineAreFound(t *testing.T) {
	parsed, err := parseTree("m", map[string]string{"low/a.go": "package p\n", "fresh/a.go": "package p\n"})
	if err != nil {
		t.Fatal(err)
	}
	found := sorted(checkRooms(parsed, map[string]room{"low": {}, "gone": {}}))
	if len(found) != 2 || found[0].at != "fresh" || !strings.Contains(found[0].rule, "add it to the table") ||
		found[1].at != "gone" || !strings.Contains(found[1].rule, "remove the line") {
		t.Errorf("findings: %v", found)
	}
}
