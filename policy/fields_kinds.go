package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The kinds of tiers, and what a model tier changes of a request.

// Bounds of what is kept and of what tiers say.
const (
	maxKept        = 30 * 24 * time.Hour
	maxTemplate    = 64 << 10 // bytes; the text is in every answer of the tier
	maxModelName   = 256
	maxSetHeaders  = 32
	maxHeaderValue = 1024
)

// tierKinds are the fields of which a tier has exactly one.
func tierKinds() []string { return []string{"model", "cache", "template"} }

func tierFields() object[rawTier] {
	return object[rawTier]{
		typ:   "a tier, such as {model: {concurrency: 4, queue: 8}}",
		later: []string{"defer"},
		fields: []field[rawTier]{
			mapped(modelFields(), func(t *rawTier) *part[rawModel] { return &t.model }, doc{
				key: "model", def: "one of three",
				meaning: "Makes this a model tier: an upstream that computes, behind a limiter."}),
			mapped(cachedFields(), func(t *rawTier) *part[rawCached] { return &t.cache }, doc{
				key: "cache", def: "one of three",
				meaning: "Makes this a tier that answers with what a model tier of the same ladder has answered before, where the route has a `cache`. It needs no compute."}),
			mapped(templateFields(), func(t *rawTier) *part[rawTemplate] { return &t.template }, doc{
				key: "template", def: "one of three",
				meaning: "Makes this a tier that answers with a fixed text, always. It needs no compute."}),
		},
	}
}

// tierSchema is the schema of a tier, which has one kind.
func tierSchema(tier object[rawTier]) *jsonschema.Schema {
	s := tier.shape().schema()
	s.MinProperties, s.MaxProperties = jsonschema.Ptr(1), jsonschema.Ptr(1)
	return s
}

func cachedFields() object[rawCached] {
	return object[rawCached]{
		typ: "a mapping such as {stale_for: 1h}",
		fields: []field[rawCached]{
			value(timerLeaf(maxKept), func(c *rawCached) *optional[time.Duration] { return &c.staleFor }, doc{
				key: "stale_for", def: "0s",
				meaning: "How long past its time an answer may still be given. Such an answer is labelled with the reason `stale`."}),
		},
	}
}

func templateFields() object[rawTemplate] {
	return object[rawTemplate]{
		typ: "a mapping such as {text: We are at capacity.}",
		fields: []field[rawTemplate]{
			value(templateLeaf(), func(t *rawTemplate) *optional[string] { return &t.text }, doc{
				key: "text", required: true,
				meaning: "The answer, in the format the request asks for, with no tokens counted. It should say what it is: callers see it where a model's words would be."}),
		},
	}
}

// templateLeaf is the text of a fixed answer.
func templateLeaf() leaf[string] {
	return leaf[string]{
		shape: shape{
			typ: "a text that is not blank", limits: fmt.Sprintf("at most %d bytes", maxTemplate),
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1), MaxLength: jsonschema.Ptr(maxTemplate)}
			},
		},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			got, ok := d.text(n, "a text")
			switch {
			case !ok:
			case strings.TrimSpace(got) == "":
				d.errorNode(n, "the text is blank", "an empty answer helps nobody: say that there is no capacity")
			case len(got) > maxTemplate:
				d.errorNode(n, fmt.Sprintf("the text has %d bytes", len(got)), fmt.Sprintf("at most %d", maxTemplate))
			default:
				return got, true
			}
			return "", false
		},
	}
}

// rewriteField is what a model tier changes of its requests.
func rewriteField() field[rawModel] {
	o := rewriteFields()
	s := o.shape()
	s.schema = func() *jsonschema.Schema {
		some := o.shape().schema()
		some.MinProperties = jsonschema.Ptr(1)
		return some
	}
	f := mapped(o, func(m *rawModel) *part[rawRewrite] { return &m.rewrite }, doc{
		key: "rewrite", def: "nothing is changed",
		meaning: "What is changed of a request that this tier runs, so that it reaches the tier's model."})
	f.shape = s
	read := f.read
	f.read = func(d *decoder, n *yaml.Node, m *rawModel) {
		read(d, n, m)
		if r := &m.rewrite; !r.bad && !r.v.model.set && !r.v.path.set && !r.v.headers.set {
			r.bad = true
			d.errorNode(n, "this rewrite changes nothing", "give model, path or headers, or remove it")
		}
	}
	return f
}

func rewriteFields() object[rawRewrite] {
	return object[rawRewrite]{
		typ: "a rewrite, such as {model: llama-8b}",
		fields: []field[rawRewrite]{
			value(modelNameLeaf(), func(r *rawRewrite) *optional[string] { return &r.model }, doc{
				key: "model", def: "the request's",
				meaning: "Replaces the model the request names, in its body, or in its path where the format has it there. A body that is not one plain JSON object is left as it is."}),
			value(pathLeaf(), func(r *rawRewrite) *optional[string] { return &r.path }, doc{
				key: "path", def: "the request's",
				meaning: "Replaces the part of the path that the route's `match` compares: the `prefix`, or the whole of an `exact` path. The query stays."}),
			value(setHeadersLeaf(), func(r *rawRewrite) *optional[[]Header] { return &r.headers }, doc{
				key: "headers", def: "the request's",
				meaning: "Headers set on the request, in place of the caller's."}),
		},
	}
}

func modelNameLeaf() leaf[string] {
	return textLeaf(textRule{typ: "a model's name: ASCII without control characters", what: "a model's name", pattern: modelPattern,
		form: modelForm, max: maxModelName, hint: "visible ASCII, with blanks only inside"})
}

// setHeadersLeaf is a map of headers in file order.
func setHeadersLeaf() leaf[[]Header] {
	name := headerNameLeaf("no credentials and no name that brownout, Envoy or HTTP itself uses", rewriteFault)
	content := textLeaf(textRule{typ: "a header value", pattern: modelPattern, form: modelForm, max: maxHeaderValue, hint: "visible ASCII, with blanks only inside"})
	return leaf[[]Header]{
		shape: shape{
			typ:    "a map from header name to value",
			limits: fmt.Sprintf("1 to %d; names have %s; values have %s", maxSetHeaders, name.limits, content.limits),
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "object", MinProperties: jsonschema.Ptr(1), MaxProperties: jsonschema.Ptr(maxSetHeaders),
					PropertyNames: &jsonschema.Schema{Pattern: headerPattern}, AdditionalProperties: content.schema()}
			},
		},
		read: func(d *decoder, n *yaml.Node) ([]Header, bool) { return d.setHeaders(n, name, content) },
	}
}

func (d *decoder) setHeaders(n *yaml.Node, name, content leaf[string]) ([]Header, bool) {
	before := d.errors
	entries, ok := d.pairs(n, "a map from header name to value")
	switch {
	case !ok:
		return nil, false
	case len(entries) == 0 && d.errors == before:
		d.errorNode(n, "there is no header", "leave headers out")
	case len(entries) > maxSetHeaders:
		d.errorNode(n, fmt.Sprintf("%d headers are too many", len(entries)), fmt.Sprintf("at most %d", maxSetHeaders))
		return nil, false
	}
	var list []Header
	for _, e := range entries {
		h := Header{}
		var ok bool
		h.Name, ok = name.read(d, e.key)
		h.Value, _ = content.read(d, e.value)
		if ok && slices.ContainsFunc(list, func(o Header) bool { return o.Name == h.Name }) {
			d.errorNode(e.key, "header "+quote(h.Name)+" is given twice", "upper and lower case are the same name: remove one")
		}
		list = append(list, h)
	}
	return list, d.errors == before
}
