package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// use is a mention of a name of another package: path.name.
type use struct {
	path, name string
}

// banned lists names that production code may not mention.
var banned = []struct {
	uses    []use
	allowed func(room) bool // nil: nowhere
	why     string
}{
	{[]use{{"time", "After"}, {"time", "Tick"}}, nil,
		"its timer cannot be stopped: use time.NewTimer or time.AfterFunc"},
	{[]use{{"time", "Now"}, {"time", "Since"}, {"time", "Until"}, {"time", "Sleep"}, {"time", "NewTimer"}, {"time", "NewTicker"}, {"time", "AfterFunc"}},
		func(r room) bool { return !r.pure }, "a pure room reads no clock: take `now time.Time`"},
	{[]use{{"context", "Background"}, {"context", "TODO"}}, func(r room) bool { return r.edge },
		"a context is made where the life cycle is owned, in internal/app: take one, or context.WithoutCancel of one"},
	{[]use{
		{"github.com/prometheus/client_golang/prometheus", "MustRegister"},
		{"github.com/prometheus/client_golang/prometheus", "Register"},
		{"github.com/prometheus/client_golang/prometheus", "DefaultRegisterer"},
		{"github.com/prometheus/client_golang/prometheus", "DefaultGatherer"},
		{"github.com/prometheus/client_golang/prometheus/promhttp", "Handler"},
	}, nil, "the default registry is global: take a prometheus.Registerer"},
	{[]use{
		{"log/slog", "Default"}, {"log/slog", "SetDefault"}, {"log/slog", "Log"}, {"log/slog", "LogAttrs"},
		{"log/slog", "Debug"}, {"log/slog", "Info"}, {"log/slog", "Warn"}, {"log/slog", "Error"},
		{"log/slog", "DebugContext"}, {"log/slog", "InfoContext"}, {"log/slog", "WarnContext"}, {"log/slog", "ErrorContext"},
	}, nil, "the default logger is global: take a *slog.Logger"},
}

// checkCalls looks for banned names, panics, goroutines in pure rooms, and JSON put together by fmt.
func checkCalls(t *tree, rooms map[string]room) []finding {
	var out []finding
	t.eachFile(func(pkg string, f *file) {
		r := rooms[pkg]
		if f.test() || r.kind == testOnly {
			return
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if why := broken(f, pkg, r, n); why != "" {
				out = append(out, finding{t.at(n), why})
			}
			return true
		})
	})
	return out
}

// broken says which rule a node breaks, or "".
func broken(f *file, pkg string, r room, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		if r.pure {
			return "a pure room starts no goroutine: return an effect"
		}
	case *ast.SelectorExpr:
		return bannedUse(f, r, n)
	case *ast.FuncDecl:
		if n.Name.Name == "init" && n.Recv == nil {
			return "init runs behind the reader's back: construct explicitly"
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" && id.Obj == nil && !abortsHandler(f, pkg, n) {
			return "panic: return an error (panic(http.ErrAbortHandler) is allowed where an HTTP server must reset: internal/stub, internal/seal)"
		}
		if buildsJSON(f, n) {
			return "fmt does not escape what it puts into JSON: use encoding/json or an append function"
		}
	}
	return ""
}

func bannedUse(f *file, r room, sel *ast.SelectorExpr) string {
	u, ok := resolve(f, sel)
	if !ok {
		return ""
	}
	for _, rule := range banned {
		for _, b := range rule.uses {
			if b == u && (rule.allowed == nil || !rule.allowed(r)) {
				return fmt.Sprintf("%s.%s: %s", u.path, u.name, rule.why)
			}
		}
	}
	return ""
}

// resolve finds which package's name a selector is; a local variable that is called like an import is none.
func resolve(f *file, e ast.Expr) (use, bool) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return use{}, false
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok || id.Obj != nil {
		return use{}, false
	}
	p, ok := f.imports[id.Name]
	return use{p, sel.Sel.Name}, ok
}

func abortsHandler(f *file, pkg string, call *ast.CallExpr) bool {
	if pkg != "internal/stub" && pkg != "internal/seal" || len(call.Args) != 1 {
		return false
	}
	u, ok := resolve(f, call.Args[0])
	return ok && u == use{"net/http", "ErrAbortHandler"}
}

// formatArg is the position of the format among the arguments of fmt's functions that produce data.
var formatArg = map[string]int{"Sprintf": 0, "Fprintf": 1, "Appendf": 1}

// buildsJSON reports whether a call formats an object with a quoted key: a verb in it puts in unescaped text.
func buildsJSON(f *file, call *ast.CallExpr) bool {
	u, ok := resolve(f, call.Fun)
	i, formats := formatArg[u.name]
	if !ok || u.path != "fmt" || !formats || len(call.Args) <= i {
		return false
	}
	lit, ok := call.Args[i].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	format, err := strconv.Unquote(lit.Value)
	return err == nil && strings.Contains(format, `{"`) && strings.Contains(format, `":`) && strings.Contains(format, "%")
}
