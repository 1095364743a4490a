package policy

import (
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The fields of tiers whose form is neither a single value nor a mapping with known fields.

// tiersField is the map from name to tier, whose order is kept.
func tiersField() field[File] {
	tier := tierFields()
	s := tier.shape()
	s.typ, s.under = "a map from name to tier", ".NAME."
	s.want = "a map from name to tier, such as {full: {model: {concurrency: 4, queue: 8}}}"
	s.limits = fmt.Sprintf("1 to %d tiers; names are 1 to 63 of `a-z`, `0-9`, `_` and `-`, begin with a letter or digit, and are %s",
		maxTiers, reservedNote(reservedTiers()))
	s.schema = func() *jsonschema.Schema {
		return &jsonschema.Schema{
			Type: "object", MinProperties: jsonschema.Ptr(1), MaxProperties: jsonschema.Ptr(maxTiers),
			PropertyNames:        nameSchema(reservedTiers()),
			AdditionalProperties: tierSchema(tier),
		}
	}
	return field[File]{
		doc: doc{key: "tiers", required: true, shape: s,
			meaning: "The ways to answer, by name. A tier's name is what callers see in `x-tier`."},
		read: func(d *decoder, n *yaml.Node, f *File) { f.tiers = d.tiers(n, tier) },
	}
}

func (d *decoder) tiers(n *yaml.Node, o object[rawTier]) []rawTier {
	entries, ok := d.pairs(n, "a map from name to tier")
	if !ok {
		return nil
	}
	if len(entries) == 0 {
		d.errorNode(n, "there is no tier", "give at least one, such as full: {model: {concurrency: 4, queue: 8}}")
	}
	if len(entries) > maxTiers {
		d.errorNode(n, fmt.Sprintf("%d tiers are too many", len(entries)), fmt.Sprintf("at most %d", maxTiers))
		return nil
	}
	tiers := make([]rawTier, 0, len(entries))
	for _, e := range entries {
		t := rawTier{name: e.name, at: place(e.key)}
		t.named = d.checkName(e.key, e.name, reservedTiers())
		d.tier(e.value, o, &t)
		tiers = append(tiers, t)
	}
	return tiers
}

// tier reads one tier, which is of one kind.
func (d *decoder) tier(n *yaml.Node, o object[rawTier], t *rawTier) {
	before := d.errors
	o.read(d, n, t)
	kinds := 0
	for _, given := range []bool{t.model.set, t.cache.set, t.template.set} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		d.errorNode(n, "this tier is of several kinds", "one of "+strings.Join(tierKinds(), ", ")+": make a tier of each")
	case kinds == 0 && d.errors == before:
		d.errorNode(n, "a tier needs a kind: one of "+strings.Join(tierKinds(), ", "), "such as {model: {concurrency: 4, queue: 8}}")
	}
}

// concurrencyField is a number, or the share of a number.
func concurrencyField() field[rawModel] {
	split := splitFields()
	one := numberLeaf(1, maxConcurrency)
	s := split.shape()
	s.typ, s.want, s.limits = "a whole number, or `{total, replicas}`", "", one.limits
	s.schema = func() *jsonschema.Schema {
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{one.schema(), split.shape().schema()}}
	}
	return field[rawModel]{
		doc: doc{key: "concurrency", required: true, shape: s,
			meaning: "How many requests this process lets be in flight at once. Limits are per process: with several replicas give the total and their number."},
		read: func(d *decoder, n *yaml.Node, m *rawModel) {
			c := &m.concurrency
			c.at = place(n)
			if n.Kind == yaml.MappingNode {
				split.read(d, n, c)
				return
			}
			c.total.at, c.total.set = c.at, true
			c.total.v, c.total.ok = one.read(d, n)
		},
	}
}
