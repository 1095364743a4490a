package policy

import (
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The ladder of a route: a list of tier names, any but the first with a condition.

// ladderField is the list of tiers of a route.
func ladderField() field[rawRoute] {
	conditions := rungFields()
	s := shape{
		typ:    "a list of tier names, each alone or as `{NAME: {wait_over: DURATION}}`",
		want:   "a list of tier names",
		limits: fmt.Sprintf("1 to %d, each once", maxTiers),
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", MinItems: jsonschema.Ptr(1), MaxItems: jsonschema.Ptr(maxTiers),
				UniqueItems: true, Items: rungSchema(conditions)}
		},
		fields: conditions.shape().fields,
		under:  "[].NAME.",
	}
	return field[rawRoute]{
		doc: doc{key: "ladder", required: true, shape: s,
			meaning: "The tiers to try, best first; one of them at least is a model tier. An answer of any but the first is labelled `x-degraded: true`."},
		read: func(d *decoder, n *yaml.Node, r *rawRoute) {
			r.ladder.set, r.ladder.at = true, place(n)
			before := d.errors
			elements, ok := d.items(n, "a list of tier names", maxTiers)
			if ok && len(elements) == 0 {
				d.errorNode(n, "the ladder is empty", "name at least one tier")
			}
			for _, e := range elements {
				if rung, ok := d.rung(e, conditions); ok {
					r.ladder.rungs = append(r.ladder.rungs, rung)
				}
			}
			r.ladder.bad = d.errors != before
		},
	}
}

// rungSchema is the schema of one step of a ladder.
func rungSchema(conditions object[rawRung]) *jsonschema.Schema {
	inner := conditions.shape().schema()
	inner.MinProperties = jsonschema.Ptr(1)
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", Pattern: namePattern},
		{Type: "object", MinProperties: jsonschema.Ptr(1), MaxProperties: jsonschema.Ptr(1),
			PropertyNames: &jsonschema.Schema{Pattern: namePattern}, AdditionalProperties: inner},
	}}
}

func rungFields() object[rawRung] {
	return object[rawRung]{
		typ: "conditions, such as {wait_over: 250ms}",
		fields: []field[rawRung]{
			value(timerLeaf(maxBudget), func(r *rawRung) *optional[time.Duration] { return &r.waitOver }, doc{
				key: "wait_over", def: "when the tiers above refuse, or the request's time runs out there",
				meaning: "Takes this tier as soon as the wait in the nearest model tier above is expected to be longer, or has been. `0s`: never wait for the better tier. Not on the first tier."}),
		},
	}
}

// rung reads one step of a ladder.
func (d *decoder) rung(n *yaml.Node, conditions object[rawRung]) (rawRung, bool) {
	rung := rawRung{at: place(n)}
	if n.Kind != yaml.MappingNode {
		name, ok := d.text(n, "a tier name")
		rung.tier = name
		return rung, ok
	}
	before := d.errors
	entries, _ := d.pairs(n, "a tier name")
	if len(entries) != 1 || entries[0].value.Kind != yaml.MappingNode || len(entries[0].value.Content) == 0 {
		if d.errors == before {
			d.errorNode(n, "expected a tier name, or one with its condition", "write NAME or {NAME: {wait_over: 250ms}}")
		}
		return rawRung{}, false
	}
	rung.tier = entries[0].name
	conditions.read(d, entries[0].value, &rung)
	return rung, true
}

// ladder resolves the names of a ladder and checks what its steps say together; b is the route's budget.
func (c *compiler) ladder(r rawRoute, b Budget) []Rung {
	raw := r.ladder
	rungs := make([]Rung, 0, len(raw.rungs))
	kept := make([]rawRung, 0, len(raw.rungs))
	lines := make(map[string]int, len(raw.rungs))
	before := c.errors
	for _, rung := range raw.rungs {
		i, ok := c.index[rung.tier]
		line, twice := lines[rung.tier]
		switch {
		case !ok:
			c.errorAt(rung.at, "there is no tier "+quote(rung.tier), suggest(rung.tier, "tiers", c.tierNames()))
		case twice:
			c.errorAt(rung.at, "tier "+quote(rung.tier)+" is in this ladder twice", fmt.Sprintf("first on line %d; the second is never tried: remove it", line))
		default:
			lines[rung.tier] = rung.at.line
			rungs = append(rungs, Rung{Tier: i, WaitOver: rung.waitOver.or(0), HasWaitOver: rung.waitOver.ok})
			kept = append(kept, rung)
		}
	}
	if c.errors == before && !raw.bad && len(kept) > 0 {
		w := ladderWalk{compiler: c, route: r, budget: b}
		for i, rung := range kept {
			w.rung(i, rung)
		}
		if !w.modelSeen && !w.unknown {
			c.errorAt(raw.at, "this ladder has no model tier", "add one: something has to make the answers")
		}
	}
	return rungs
}

// ladderWalk looks at the steps of one ladder from the top.
type ladderWalk struct {
	*compiler
	route     rawRoute
	budget    Budget
	nearest   *rawTier // the model tier last passed; nil: none
	modelSeen bool
	unknown   bool   // a tier passed is of no known kind, which is an error elsewhere
	final     string // the template last passed: it always answers
}

// rung looks at the step at index i.
func (w *ladderWalk) rung(i int, r rawRung) {
	t := &w.file.tiers[w.index[r.tier]]
	if w.final != "" {
		w.warnAt(r.at, "tier "+quote(r.tier)+" can never be reached: template "+quote(w.final)+" before it always answers", "move it up or remove it")
	} else {
		w.waitOver(i, r)
	}
	switch {
	case t.model.set:
		w.nearest, w.modelSeen = t, true
		if t.model.v.rewrite.v.path.ok && !w.route.match.bad && !w.route.match.path.prefix.set && !w.route.match.path.exact.set {
			w.errorAt(r.at, "tier "+quote(r.tier)+" rewrites the path that a route matches, and this one matches every path", "give match a path")
		}
	case t.template.set:
		if w.final == "" {
			w.final = t.name
		}
	case t.cache.set:
		if !w.route.cache.set {
			w.warnAt(r.at, "tier "+quote(r.tier)+" never has an answer: this route keeps none", "give the route a cache, such as cache: {ttl: 60s}, or remove the tier")
		}
	default:
		w.unknown = true
	}
}

// waitOver looks at the condition of a step: whether there is a wait that it can end.
func (w *ladderWalk) waitOver(i int, r rawRung) {
	if !r.waitOver.ok {
		return
	}
	idle := func(why, hint string) {
		w.warnAt(r.waitOver.at, "wait_over "+short(r.waitOver.v)+" can never fire: "+why, hint)
	}
	switch queue := w.queue(); {
	case i == 0:
		w.errorAt(r.waitOver.at, "the first tier of a ladder has no wait_over", "there is no better tier to wait for: remove it")
	case w.nearest == nil && !w.unknown:
		idle("there is no model tier above to wait for", "remove it")
	case queue.ok && queue.v == 0:
		idle("nobody waits in tier "+quote(w.nearest.name)+", whose queue is 0", "give that tier a queue or remove wait_over")
	case !w.route.budget.max.bad() && r.waitOver.v >= w.budget.Max:
		idle("the largest budget of "+short(w.budget.Max)+" ends the wait before it", "lower it below "+short(w.budget.Max)+" or remove it")
	}
}

// queue is how many may wait in the model tier above.
func (w *ladderWalk) queue() optional[int] {
	if w.nearest == nil {
		return optional[int]{}
	}
	return w.nearest.model.v.queue
}
