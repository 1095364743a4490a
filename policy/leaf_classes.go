package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// maxClasses bounds the priority map, and with it the classes metrics tell apart.
const maxClasses = 32

// classesLeaf is the map from header value to priority.
func classesLeaf() leaf[map[string]int] {
	one := numberLeaf(-maxPriority, maxPriority)
	return leaf[map[string]int]{
		shape: shape{
			typ: "a map from header value to whole number",
			limits: fmt.Sprintf("at most %d values of 1 to 64 visible ASCII characters without comma, %s; priorities %s",
				maxClasses, reservedNote(reservedClasses()), one.limits),
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{
					Type: "object", MaxProperties: jsonschema.Ptr(maxClasses),
					PropertyNames:        &jsonschema.Schema{Pattern: classPattern, Not: wordsSchema(reservedClasses())},
					AdditionalProperties: one.schema(),
				}
			},
		},
		read: func(d *decoder, n *yaml.Node) (map[string]int, bool) { return d.classes(n, one) },
	}
}

func (d *decoder) classes(n *yaml.Node, one leaf[int]) (map[string]int, bool) {
	before := d.errors
	entries, ok := d.pairs(n, "a map from header value to priority")
	if !ok {
		return nil, false
	}
	if len(entries) > maxClasses {
		d.errorNode(n, fmt.Sprintf("%d header values are too many", len(entries)), fmt.Sprintf("at most %d", maxClasses))
		return nil, false
	}
	m := make(map[string]int, len(entries))
	for _, e := range entries {
		if !classForm.MatchString(e.name) {
			d.errorNode(e.key, quote(e.name)+" is not a header value that can be mapped", "1 to 64 visible ASCII characters without blank and comma")
		}
		if slices.Contains(reservedClasses(), e.name) {
			d.errorNode(e.key, quote(e.name)+" is a reserved class", "reserved are "+strings.Join(reservedClasses(), ", "))
		}
		m[e.name], _ = one.read(d, e.value)
	}
	return m, d.errors == before
}

// wordsSchema is the schema of a string out of a closed set.
func wordsSchema(words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}
