package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// constructors build values nobody changes afterwards.
var constructors = map[use]bool{
	{"errors", "New"}:              true,
	{"fmt", "Errorf"}:              true,
	{"regexp", "MustCompile"}:      true,
	{"strings", "NewReplacer"}:     true,
	{"net/netip", "MustParseAddr"}: true,
}

// checkVars demands that a package-level variable is an error, a table or a compiled expression: anything else is
// state that two instances in one process would share.
func checkVars(t *tree, rooms map[string]room) []finding {
	var out []finding
	t.eachFile(func(pkg string, f *file) {
		if f.test() || rooms[pkg].kind == testOnly {
			return
		}
		for _, d := range f.syntax.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, s := range decl.Specs {
				out = append(out, mutableNames(t, f, decl, s.(*ast.ValueSpec))...)
			}
		}
	})
	return out
}

func mutableNames(t *tree, f *file, decl *ast.GenDecl, spec *ast.ValueSpec) []finding {
	if embedded(decl.Doc) || embedded(spec.Doc) {
		return nil
	}
	var out []finding
	for i, name := range spec.Names {
		if name.Name == "_" || i < len(spec.Values) && constant(f, spec.Values[i]) {
			continue
		}
		out = append(out, finding{t.at(name), fmt.Sprintf("package-level var %s is not an error, a table or a compiled expression: make it a field, a parameter or a function", name.Name)})
	}
	return out
}

// constant reports whether a value is one of the allowed kinds.
func constant(f *file, e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.CallExpr:
		if array, ok := e.Fun.(*ast.ArrayType); ok {
			return array.Len == nil // []byte("…"), a table of bytes
		}
		u, ok := resolve(f, e.Fun)
		return ok && constructors[u]
	}
	return false
}

// embedded reports whether a comment is a go:embed directive.
func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}
