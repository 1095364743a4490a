package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// shape describes a value to its readers: the words of the reference and the JSON Schema.
type shape struct {
	typ    string                    // what to write, in words
	want   string                    // the same for a message about its absence; typ if empty
	limits string                    // the bounds, in words; empty if typ says it all
	schema func() *jsonschema.Schema // a fresh schema each call: a schema is a tree and shares no part
	fields []doc                     // the fields of a mapping; nil for a single value
	under  string                    // what a field's path has between the mapping's own path and its key
}

// doc is what a reader needs to know about a field.
type doc struct {
	key      string
	meaning  string
	def      string // the default as written in a file; empty if there is none
	required bool
	shape
}

// field is one field of a mapping that is decoded into a T.
type field[T any] struct {
	doc
	read func(d *decoder, n *yaml.Node, into *T)
}

// object is a mapping with known fields.
type object[T any] struct {
	typ    string // what it is, in words: "a tier"
	fields []field[T]
	later  []string // fields that a later version brings: refused by name, so that nobody looks for a typo
}

// read decodes the mapping n into into and reports unknown, later and missing fields.
func (o object[T]) read(d *decoder, n *yaml.Node, into *T) {
	entries, ok := d.pairs(n, o.typ)
	if !ok {
		return
	}
	given := make(map[string]bool, len(entries))
	for _, e := range entries {
		given[e.name] = true
		o.readField(d, e, into)
	}
	for _, f := range o.fields {
		if f.required && !given[f.key] {
			d.errorNode(n, "missing field "+quote(f.key), "add "+strings.ReplaceAll(cmp.Or(f.want, f.typ), "`", ""))
		}
	}
}

func (o object[T]) readField(d *decoder, e pair, into *T) {
	for _, f := range o.fields {
		if f.key == e.name {
			f.read(d, e.value, into)
			return
		}
	}
	if slices.Contains(o.later, e.name) {
		d.notYet(e.key, e.name)
		return
	}
	known := make([]string, len(o.fields))
	for i, f := range o.fields {
		known[i] = f.key
	}
	d.errorNode(e.key, "unknown field "+quote(e.name), suggest(e.name, "known fields", known))
}

// notYet reports a name of the policy language that this version does not have.
func (d *decoder) notYet(n *yaml.Node, name string) {
	d.errorNode(n, quote(name)+" is not yet available in this version", "remove it")
}

// shape describes the mapping itself.
func (o object[T]) shape() shape {
	docs := make([]doc, len(o.fields))
	for i, f := range o.fields {
		docs[i] = f.doc
	}
	return shape{typ: "a mapping", want: o.typ, fields: docs, under: ".", schema: func() *jsonschema.Schema { return objectSchema(docs) }}
}

// optional is a value that a file may leave out.
type optional[V any] struct {
	v   V
	at  position
	set bool // the file has the field
	ok  bool // and its value is valid, so v holds it
}

// or returns the value, or def where the file has no valid one.
func (o optional[V]) or(def V) V {
	if o.ok {
		return o.v
	}
	return def
}

// bad reports whether the file has the field, but with a value that was refused.
func (o optional[V]) bad() bool { return o.set && !o.ok }

// leaf is a kind of single value.
type leaf[V any] struct {
	shape
	read func(d *decoder, n *yaml.Node) (V, bool)
}

// value makes a field of a single value; get says where in T it goes.
func value[T, V any](l leaf[V], get func(*T) *optional[V], about doc) field[T] {
	about.shape = l.shape
	return field[T]{doc: about, read: func(d *decoder, n *yaml.Node, into *T) {
		o := get(into)
		o.at, o.set = place(n), true
		o.v, o.ok = l.read(d, n)
	}}
}

// nested makes a field of a mapping; get says where in T it goes.
func nested[T, V any](o object[V], get func(*T) *V, about doc) field[T] {
	about.shape = o.shape()
	return field[T]{doc: about, read: func(d *decoder, n *yaml.Node, into *T) { o.read(d, n, get(into)) }}
}

// part is a mapping that a file may leave out and whose presence says something.
type part[V any] struct {
	v   V
	at  position
	set bool // the file has the field
	bad bool // something in it was refused
}

// mapped makes a field of such a mapping; get says where in T it goes.
func mapped[T, V any](o object[V], get func(*T) *part[V], about doc) field[T] {
	about.shape = o.shape()
	return field[T]{doc: about, read: func(d *decoder, n *yaml.Node, into *T) {
		p := get(into)
		before := d.errors
		p.at, p.set = place(n), true
		o.read(d, n, &p.v)
		p.bad = d.errors != before
	}}
}

// objectSchema is the schema of a mapping with the given fields and no other.
func objectSchema(docs []doc) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           make(map[string]*jsonschema.Schema, len(docs)),
		AdditionalProperties: nothing(),
	}
	for _, f := range docs {
		p := f.schema()
		p.Description = f.describe()
		s.Properties[f.key] = p
		s.PropertyOrder = append(s.PropertyOrder, f.key)
		if f.required {
			s.Required = append(s.Required, f.key)
		}
	}
	return s
}

// nothing is the schema no value satisfies.
func nothing() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

// describe is the description of a field in the schema.
func (f doc) describe() string {
	if f.def == "" {
		return f.meaning
	}
	return fmt.Sprintf("%s Default: %s.", f.meaning, f.def)
}
