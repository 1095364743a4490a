package archtest

import (
	"fmt"
	"strconv"
	"strings"
)

// checkRooms demands a place for every package, and a package for every place.
func checkRooms(t *tree, rooms map[string]room) []finding {
	var out []finding
	for pkg := range t.packages {
		if _, ok := rooms[pkg]; !ok {
			out = append(out, finding{pkg, "package has no place among the rooms: add it to the table in internal/archtest/rooms.go, with its level"})
		}
	}
	for pkg := range rooms {
		if _, ok := t.packages[pkg]; !ok {
			out = append(out, finding{pkg, "the table in internal/archtest/rooms.go places a package that does not exist: remove the line"})
		}
	}
	return out
}

// checkImports demands that imports point one way.
func checkImports(t *tree, rooms map[string]room) []finding {
	var out []finding
	t.eachImport(func(pkg string, f *file, at, imported string) {
		if f.test() {
			return // a test may look at its subject from any side
		}
		inner, ours := strings.CutPrefix(imported, t.module+"/")
		from, known := rooms[pkg]
		to, placed := rooms[inner]
		if !ours || !known || !placed || from.kind == testOnly {
			return
		}
		switch {
		case to.kind == testOnly:
			out = append(out, finding{at, fmt.Sprintf("%s is for tests and may be imported by test files only", inner)})
		case from.kind == outsider && to.kind == layered:
			out = append(out, finding{at, fmt.Sprintf("%s judges brownout from outside and may not import %s: observe it over the network", pkg, inner)})
		case from.kind == layered && to.kind == outsider && !from.edge:
			out = append(out, finding{at, fmt.Sprintf("%s is wired up by internal/app only", inner)})
		case from.kind == layered && to.kind == layered && to.level >= from.level:
			out = append(out, finding{at, fmt.Sprintf("%s (level %d) may import lower levels only, %s has level %d: move the code, or declare an interface where it is used", pkg, from.level, inner, to.level)})
		}
	})
	return out
}

// foreign lists imports that only some rooms may have.
var foreign = []struct {
	path    string // an import path, or the beginning of one if it ends in a slash
	allowed func(pkg string, r room) bool
	why     string
}{
	{"github.com/envoyproxy/go-control-plane/envoy/service/", func(pkg string, r room) bool { return pkg == "extproc" || r.kind == testOnly },
		"only extproc speaks Envoy's services, so that another front end can drive the core"},
	{"log", func(string, room) bool { return false }, "the standard logger is global: take a *slog.Logger"},
	{"log/slog", notPure, "a pure room returns what is worth knowing; its caller logs"},
	{"sync", func(_ string, r room) bool { return !r.pure || r.locks }, "a pure room belongs to one caller at a time and needs no lock"},
	{"sync/atomic", func(_ string, r room) bool { return !r.pure || r.locks }, "a pure room belongs to one caller at a time and needs no atomics"},
	{"google.golang.org/protobuf/", notPure, "a pure room knows no wire format; extproc translates"},
	{"google.golang.org/grpc", notPure, "a pure room knows no transport; extproc translates"},
	{"google.golang.org/grpc/", notPure, "a pure room knows no transport; extproc translates"},
	{"github.com/envoyproxy/", notPure, "a pure room knows no wire format; extproc and envoy translate"},
	{"github.com/prometheus/", notPure, "a pure room counts nothing itself; metrics observes it"},
}

func notPure(_ string, r room) bool { return !r.pure }

// checkForeign demands that the rules on imports from elsewhere hold.
func checkForeign(t *tree, rooms map[string]room) []finding {
	var out []finding
	t.eachImport(func(pkg string, f *file, at, imported string) {
		if f.test() {
			return
		}
		for _, rule := range foreign {
			hit := imported == rule.path || strings.HasSuffix(rule.path, "/") && strings.HasPrefix(imported, rule.path)
			if hit && !rule.allowed(pkg, rooms[pkg]) {
				out = append(out, finding{at, fmt.Sprintf("%s may not import %s: %s", pkg, imported, rule.why)})
			}
		}
	})
	return out
}

func (t *tree) eachImport(visit func(pkg string, f *file, at, imported string)) {
	for pkg, files := range t.packages {
		for _, f := range files {
			for _, spec := range f.syntax.Imports {
				if p, err := strconv.Unquote(spec.Path.Value); err == nil {
					visit(pkg, f, t.at(spec), p)
				}
			}
		}
	}
}
