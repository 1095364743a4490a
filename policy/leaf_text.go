package policy

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The spellings of texts that name something outside the policy.
const (
	modelPattern   = `^[!-~]([ -~]*[!-~])?$`      // visible ASCII with blanks inside
	markPattern    = `^[!-~]+$`                   // visible ASCII
	filePattern    = `^/[^\x00-\x1f\x7f]+$`       // absolute, without control characters
	addressPattern = `^[^ ]+:[0-9]{1,5}$`         // HOST:PORT
	sizePattern    = `^[1-9][0-9]*(KiB|MiB|GiB)$` // powers of 1024
)

var (
	modelForm   = regexp.MustCompile(modelPattern)
	markForm    = regexp.MustCompile(markPattern)
	fileForm    = regexp.MustCompile(filePattern)
	addressForm = regexp.MustCompile(addressPattern)
	sizeForm    = regexp.MustCompile(sizePattern)
)

// textRule says what a text may be.
type textRule struct {
	typ     string // what to write, in words
	what    string // the same for a message about another type; typ if empty
	pattern string // for the schema
	form    *regexp.Regexp
	max     int // characters
	hint    string
}

// textLeaf is a text of the given form.
func textLeaf(r textRule) leaf[string] {
	if r.what == "" {
		r.what = r.typ
	}
	limits := fmt.Sprintf("1 to %d characters", r.max)
	return leaf[string]{
		shape: shape{
			typ: r.typ, limits: limits,
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "string", Pattern: r.pattern, MaxLength: jsonschema.Ptr(r.max)}
			},
		},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			got, ok := d.text(n, r.what)
			switch {
			case !ok:
			case utf8.RuneCountInString(got) > r.max:
				d.errorNode(n, fmt.Sprintf("%s has %d characters", quote(got), utf8.RuneCountInString(got)), limits)
			case !r.form.MatchString(got):
				d.errorNode(n, quote(got)+" is not "+r.what, r.hint)
			default:
				return got, true
			}
			return "", false
		},
	}
}

// markLeaf is a short text of visible characters.
func markLeaf(what string, limit int) leaf[string] {
	return textLeaf(textRule{typ: what + ": visible ASCII", what: what, pattern: markPattern, form: markForm, max: limit,
		hint: "visible ASCII without blanks"})
}

// fileLeaf is the path of a file on the machine of `brownout serve`. Whether the file is there is for serve to say.
func fileLeaf() leaf[string] {
	return textLeaf(textRule{typ: "an absolute path of a file", pattern: filePattern, form: fileForm, max: 4096,
		hint: "begin it with /, so that it does not depend on where brownout was started"})
}

// addressLeaf is HOST:PORT.
func addressLeaf() leaf[string] {
	l := textLeaf(textRule{typ: "HOST:PORT", what: "an address", pattern: addressPattern, form: addressForm, max: 300,
		hint: "write HOST:PORT, such as redis.internal:6379 or [::1]:6379"})
	inner := l.read
	l.read = func(d *decoder, n *yaml.Node) (string, bool) {
		got, ok := inner(d, n)
		if !ok {
			return "", false
		}
		host, port, err := net.SplitHostPort(got)
		if p, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || p == 0 || host == "" {
			d.errorNode(n, quote(got)+" is not an address", "write HOST:PORT, such as redis.internal:6379 or [::1]:6379")
			return "", false
		}
		return got, true
	}
	return l
}

// sizeLeaf is a number of bytes between lo and hi, which are whole MiB.
func sizeLeaf(lo, hi int64) leaf[int64] {
	limits := fmt.Sprintf("%s to %s", size(lo), size(hi))
	return leaf[int64]{
		shape: shape{
			typ: "a size such as 64MiB or 2GiB", limits: limits,
			schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: sizePattern} },
		},
		read: func(d *decoder, n *yaml.Node) (int64, bool) {
			v, ok := d.size(n)
			if ok && (v < lo || v > hi) {
				d.errorNode(n, quoteless(n.Value)+" is out of range", limits)
				return 0, false
			}
			return v, ok
		},
	}
}

func (d *decoder) size(n *yaml.Node) (int64, bool) {
	const what = "a size with a unit"
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Style&yaml.TaggedStyle == 0 {
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), "add KiB, MiB or GiB")
		return 0, false
	}
	got, ok := d.text(n, what)
	if !ok {
		return 0, false
	}
	if !sizeForm.MatchString(got) {
		d.errorNode(n, quote(got)+" is not a size", "write digits and KiB, MiB or GiB, such as 64MiB")
		return 0, false
	}
	digits, unit := got[:len(got)-3], got[len(got)-3:]
	v, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		d.errorNode(n, quoteless(got)+" is out of range", "use a larger unit, or less")
		return 0, false
	}
	return v << (10 * (1 + slices.Index(sizeUnits(), unit))), true
}

func sizeUnits() []string { return []string{"KiB", "MiB", "GiB"} }

// size renders a number of bytes in the largest unit that leaves no rest.
func size(v int64) string {
	for i, unit := range slices.Backward(sizeUnits()) {
		if shift := 10 * (1 + i); v>>shift > 0 && v>>shift<<shift == v {
			return strconv.FormatInt(v>>shift, 10) + unit
		}
	}
	return strconv.FormatInt(v, 10) + " bytes"
}

// listLeaf is a list of 1 to limit different texts; one is what each of them is, and what names them all.
func listLeaf(what string, limit int, one leaf[string]) leaf[[]string] {
	return leaf[[]string]{
		shape: shape{
			typ:    what,
			limits: fmt.Sprintf("1 to %d, each once; each %s", limit, strings.TrimPrefix(one.limits, "of ")),
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "array", MinItems: jsonschema.Ptr(1), MaxItems: jsonschema.Ptr(limit), UniqueItems: true, Items: one.schema()}
			},
		},
		read: func(d *decoder, n *yaml.Node) ([]string, bool) {
			before := d.errors
			elements, ok := d.items(n, what, limit)
			if ok && len(elements) == 0 {
				d.errorNode(n, "the list is empty", "leave it out")
			}
			var list []string
			for _, e := range elements {
				got, ok := one.read(d, e)
				if ok && slices.Contains(list, got) {
					d.errorNode(e, quote(got)+" is listed twice", "remove one")
				}
				list = append(list, got)
			}
			return list, d.errors == before
		},
	}
}
