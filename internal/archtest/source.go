package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// file is one parsed Go file.
type file struct {
	name    string // path below the module, with slashes
	syntax  *ast.File
	imports map[string]string // local name → import path
	lines   int
}

// test reports whether the file is part of a test.
func (f *file) test() bool { return strings.HasSuffix(f.name, "_test.go") }

// generated reports whether a program wrote the file; nobody reads such a file from top to bottom.
func (f *file) generated() bool { return ast.IsGenerated(f.syntax) }

// tree is the parsed source of one module.
type tree struct {
	module   string
	fset     *token.FileSet
	packages map[string][]*file // by path below the module
}

// finding is one broken rule at one place.
type finding struct {
	at   string // file:line, or a package path
	rule string // what is wrong, why it is a rule, and the remedy
}

func (f finding) String() string { return f.at + ": " + f.rule }

// at renders a position as file:line.
func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// parseTree parses sources: content by path below the module.
func parseTree(module string, sources map[string]string) (*tree, error) {
	t := &tree{module: module, fset: token.NewFileSet(), packages: map[string][]*file{}}
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		syntax, err := parser.ParseFile(t.fset, name, sources[name], parser.ParseComments)
		if err != nil {
			return nil, err
		}
		f := &file{name: name, syntax: syntax, imports: importNames(syntax), lines: strings.Count(sources[name], "\n")}
		t.packages[path.Dir(name)] = append(t.packages[path.Dir(name)], f)
	}
	return t, nil
}

// importNames maps the names a file calls its imports by to their paths. A path's last element stands for the
// package name, without a major version.
func importNames(f *ast.File) map[string]string {
	out := make(map[string]string, len(f.Imports))
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if len(name) > 1 && name[0] == 'v' && name[1] >= '0' && name[1] <= '9' {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = p
	}
	return out
}

// readModule reads the Go files below root. Folders the go command ignores and nested modules are left out.
func readModule(root string) (map[string]string, error) {
	sources := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(root, p, d.Name())
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		sources[filepath.ToSlash(rel)] = string(content)
		return nil
	})
	return sources, err
}

func skipDir(root, p, name string) error {
	if p == root {
		return nil
	}
	if name == "testdata" || name == "node_modules" || name[0] == '.' || name[0] == '_' {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}
