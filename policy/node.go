package policy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Bounds on the shape of the text. They are far above what a real policy needs and protect the loader, which
// also runs at each reload, from files that were never meant to be one.
const (
	maxKeys   = 1000 // keys of one mapping, known or not
	maxTiers  = 256
	maxRoutes = 256
)

// decoder turns YAML nodes into the raw file and collects what is wrong with them. It follows the structure of
// the policy, never that of the text, so depth, self-reference and the size of expanded aliases do not matter.
type decoder struct{ report }

// errorNode records an error at n; hint may be empty.
func (d *decoder) errorNode(n *yaml.Node, message, hint string) { d.errorAt(place(n), message, hint) }

// place returns where n is. A value reached through an alias is where its anchor is.
func place(n *yaml.Node) position {
	n = resolve(n)
	return position{n.Line, n.Column}
}

// resolve follows an alias. An alias never points at another alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// pair is one entry of a mapping.
type pair struct {
	name       string
	key, value *yaml.Node // value is resolved
}

// pairs returns the entries of the mapping n in file order, without those whose key is unusable or repeated;
// those are reported. ok is false if n is no mapping, which is reported as "expected <what>".
func (d *decoder) pairs(n *yaml.Node, what string) (entries []pair, ok bool) {
	n = resolve(n)
	if !d.is(n, yaml.MappingNode, what) {
		return nil, false
	}
	if len(n.Content) > 2*maxKeys {
		d.errorNode(n, fmt.Sprintf("this mapping has more than %d keys", maxKeys), "")
		return nil, false
	}
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		name, ok := d.key(key)
		if !ok {
			continue
		}
		if line, dup := lines[name]; dup {
			d.errorNode(key, "duplicate key "+quote(name), fmt.Sprintf("first given on line %d", line))
			continue
		}
		lines[name] = key.Line
		entries = append(entries, pair{name, key, value})
	}
	return entries, true
}

// key returns the text of a mapping key, which must be a string.
func (d *decoder) key(n *yaml.Node) (string, bool) {
	if n.ShortTag() == "!!merge" {
		d.errorNode(n, `merge key "<<" is not supported`, "write the fields out")
		return "", false
	}
	return d.text(n, "a string as key")
}

// items returns the elements of the list n, resolved; limit bounds their number. ok is false if n is no list or
// too long, which is reported.
func (d *decoder) items(n *yaml.Node, what string, limit int) (elements []*yaml.Node, ok bool) {
	n = resolve(n)
	if !d.is(n, yaml.SequenceNode, what) {
		return nil, false
	}
	if len(n.Content) > limit {
		d.errorNode(n, fmt.Sprintf("%d elements are too many", len(n.Content)), fmt.Sprintf("at most %d", limit))
		return nil, false
	}
	for _, e := range n.Content {
		elements = append(elements, resolve(e))
	}
	return elements, true
}

// text returns the string in n. A number, a boolean or a date is no string: what it would read back as is not
// certain, so the author has to quote it.
func (d *decoder) text(n *yaml.Node, what string) (string, bool) {
	n = resolve(n)
	if !d.is(n, yaml.ScalarNode, what) {
		return "", false
	}
	if tag := n.ShortTag(); tag != "!!str" {
		hint := ""
		if tag != "!!null" {
			hint = "quote it: " + quote(n.Value)
		}
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), hint)
		return "", false
	}
	return n.Value, true
}

// is reports whether n has the wanted kind and no tag of its own, and records the error if not.
func (d *decoder) is(n *yaml.Node, kind yaml.Kind, what string) bool {
	if n.Style&yaml.TaggedStyle != 0 {
		d.errorNode(n, "tag "+quote(n.Tag)+" is not supported", "remove it")
		return false
	}
	if n.Kind != kind {
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), shapeHint(n, kind))
		return false
	}
	return true
}

// shapeHint helps with the commonest mix-up, a single value where a list is wanted.
func shapeHint(n *yaml.Node, want yaml.Kind) string {
	if want == yaml.SequenceNode && n.Kind == yaml.ScalarNode && n.Value != "" && len(n.Value) <= maxQuoted {
		return "write [" + oneLine(n.Value) + "]"
	}
	return ""
}

// describe names what n is, in the words of an author.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int":
		return "the number " + quoteless(n.Value)
	case "!!float":
		return "the number " + quoteless(n.Value)
	case "!!bool":
		return "the boolean " + quoteless(n.Value)
	case "!!timestamp":
		return "the date " + quoteless(n.Value)
	}
	return "the string " + quote(n.Value)
}

// quoteless is quote without the quotes, for values YAML does not take for strings.
func quoteless(s string) string { return strings.ReplaceAll(quote(s), `"`, "") }
