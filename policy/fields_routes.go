package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The fields of routes whose form is neither a single value nor a mapping with known fields.

// maxMethods bounds the methods of one route.
const maxMethods = 32

// routesField is the list of routes.
func routesField() field[File] {
	route := routeFields()
	s := route.shape()
	s.typ, s.under = "a list of routes", "[]."
	s.want = "a list of routes, such as [{name: chat, ladder: [full]}]"
	s.limits = fmt.Sprintf("1 to %d routes", maxRoutes)
	s.schema = func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", MinItems: jsonschema.Ptr(1), MaxItems: jsonschema.Ptr(maxRoutes),
			Items: route.shape().schema()}
	}
	return field[File]{
		doc: doc{key: "routes", required: true, shape: s,
			meaning: "Which requests brownout decides about. The first route that matches wins; a request that matches none passes untouched."},
		read: func(d *decoder, n *yaml.Node, f *File) {
			elements, ok := d.items(n, "a list of routes", maxRoutes)
			if ok && len(elements) == 0 {
				d.errorNode(n, "there is no route", "give at least one, such as {name: chat, ladder: [full]}")
			}
			for _, e := range elements {
				r := rawRoute{at: place(e)}
				route.read(d, e, &r)
				r.match.bad = r.match.bad || e.Kind != yaml.MappingNode
				f.routes = append(f.routes, r)
			}
		},
	}
}

// matchField selects requests.
func matchField() field[rawRoute] {
	o := object[rawMatch]{typ: "a match, such as {method: POST, path: {prefix: /v1}}",
		fields: []field[rawMatch]{methodField(), pathField()}}
	return field[rawRoute]{
		doc: doc{key: "match", shape: o.shape(), def: "every request",
			meaning: "Which requests the route takes. What is left out matches everything."},
		read: func(d *decoder, n *yaml.Node, r *rawRoute) {
			before := d.errors
			r.match.at = place(n)
			o.read(d, n, &r.match)
			r.match.bad = d.errors != before
		},
	}
}

func pathField() field[rawMatch] {
	o := pathFields()
	s := o.shape()
	s.schema = func() *jsonschema.Schema {
		either := o.shape().schema()
		either.MinProperties, either.MaxProperties = jsonschema.Ptr(1), jsonschema.Ptr(1)
		return either
	}
	return field[rawMatch]{
		doc: doc{key: "path", shape: s, def: "every path",
			meaning: "The path, compared byte for byte without its query, as Envoy hands it over."},
		read: func(d *decoder, n *yaml.Node, m *rawMatch) {
			before := d.errors
			o.read(d, n, &m.path)
			if d.errors == before && m.path.prefix.set == m.path.exact.set {
				d.errorNode(n, "a path needs either prefix or exact", "for every path leave path out")
			}
		},
	}
}

func methodField() field[rawMatch] {
	one := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: methodPattern} }
	s := shape{
		typ:    "a method in upper case, or a list of them",
		limits: fmt.Sprintf("1 to %d methods", maxMethods),
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{one(), {
				Type: "array", Items: one(), MinItems: jsonschema.Ptr(1), MaxItems: jsonschema.Ptr(maxMethods), UniqueItems: true,
			}}}
		},
	}
	return field[rawMatch]{
		doc: doc{key: "method", shape: s, def: "every method", meaning: "The method, or any of several."},
		read: func(d *decoder, n *yaml.Node, m *rawMatch) {
			if n.Kind == yaml.ScalarNode {
				d.method(n, m)
				return
			}
			elements, ok := d.items(n, "a method or a list of methods", maxMethods)
			if ok && len(elements) == 0 {
				d.errorNode(n, "the list of methods is empty", "for every method leave method out")
			}
			for _, e := range elements {
				d.method(e, m)
			}
		},
	}
}

// knownMethods are the registered methods worth suggesting; any other token is allowed, with a warning. CONNECT is
// left out: Envoy routes none.
func knownMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"}
}

func (d *decoder) method(n *yaml.Node, m *rawMatch) {
	got, ok := d.text(n, "a method")
	switch {
	case !ok:
	case !methodForm.MatchString(got):
		hint := suggest(got, "such as", knownMethods())
		if upper := strings.ToUpper(got); methodForm.MatchString(upper) {
			hint = "methods are case-sensitive: write " + upper
		}
		d.errorNode(n, quote(got)+" is not a method", hint)
	case slices.Contains(m.methods, got):
		d.errorNode(n, "method "+quote(got)+" is listed twice", "remove one")
	default:
		if !slices.Contains(knownMethods(), got) {
			d.warnAt(place(n), "method "+quote(got)+" is not a common one", suggest(got, "such as", knownMethods()))
		}
		m.methods = append(m.methods, got)
	}
}

// statusField maps shed reasons to statuses.
func statusField() field[rawShed] {
	status := func() *jsonschema.Schema { return &jsonschema.Schema{Enum: []any{503, 429}} }
	s := shape{
		typ:    "a map from shed reason to 503 or 429",
		limits: "reasons: `" + strings.Join(ShedReasons(), "`, `") + "`",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "object", PropertyNames: wordsSchema(ShedReasons()), AdditionalProperties: status()}
		},
	}
	return field[rawShed]{
		doc: doc{key: "status", shape: s, def: "503 for every reason",
			meaning: "The HTTP status of a refusal, by reason. Clients that retry on 429 but not on 503 may need it."},
		read: func(d *decoder, n *yaml.Node, shed *rawShed) { shed.status = d.statuses(n) },
	}
}

func (d *decoder) statuses(n *yaml.Node) map[string]int {
	entries, ok := d.pairs(n, "a map from shed reason to 503 or 429")
	if !ok {
		return nil
	}
	m := make(map[string]int, len(entries))
	for _, e := range entries {
		if !slices.Contains(ShedReasons(), e.name) {
			d.errorNode(e.key, quote(e.name)+" is not a shed reason", suggest(e.name, "one of", ShedReasons()))
		}
		v, ok := d.number(e.value, math.MinInt32, math.MaxInt32)
		if ok && v != 503 && v != 429 {
			d.errorNode(e.value, "a request is shed with 503 or 429, not "+strconv.Itoa(v), "504 and others say something else to callers")
			continue
		}
		m[e.name] = v
	}
	return m
}
