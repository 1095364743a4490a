package archtest

import (
	"fmt"
	"go/ast"
	"strings"
)

// The hard stops; the aim is far below them.
const (
	maxFuncLines = 70
	maxFileLines = 500
)

// checkPackageComments demands exactly one package comment per package, in a file that is not a test.
func checkPackageComments(t *tree, _ map[string]room) []finding {
	var out []finding
	for pkg, files := range t.packages {
		var with []string
		for _, f := range files {
			if !f.test() && f.syntax.Doc != nil && strings.TrimSpace(f.syntax.Doc.Text()) != "" {
				with = append(with, f.name)
			}
		}
		switch len(with) {
		case 1:
		case 0:
			out = append(out, finding{pkg, "no package comment: say what it is for, its invariants, and who may call it from which goroutine"})
		default:
			out = append(out, finding{pkg, fmt.Sprintf("package comments in %s: keep one", strings.Join(with, " and "))})
		}
	}
	return out
}

// checkLengths bounds functions and files that somebody has to read. Test files may be longer: a table is one idea.
func checkLengths(t *tree, _ map[string]room) []finding {
	var out []finding
	t.eachFile(func(_ string, f *file) {
		if f.test() || f.generated() {
			return
		}
		if f.lines > maxFileLines {
			out = append(out, finding{f.name, fmt.Sprintf("%d lines, at most %d: split it by ideas", f.lines, maxFileLines)})
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1; n > maxFuncLines {
				out = append(out, finding{t.at(fn), fmt.Sprintf("%s has %d lines, at most %d: split it", fn.Name.Name, n, maxFuncLines)})
			}
		}
	})
	return out
}

func (t *tree) eachFile(visit func(pkg string, f *file)) {
	for pkg, files := range t.packages {
		for _, f := range files {
			visit(pkg, f)
		}
	}
}
