package policy

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// The spellings of single values. The same text serves the loader and the JSON Schema, which is why only syntax
// that Go and ECMA-262 read alike appears here.
const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	namePattern     = `^[a-z0-9][a-z0-9_-]{0,62}$`
	headerPattern   = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$" // a token of RFC 9110 §5.6.2, bounded
	methodPattern   = "^[!#$%&'*+.^_`|~0-9A-Z-]{1,32}$"     // RFC 9110 §9.1: a token; ours has no lower case
	classPattern    = `^[!-+\--~]{1,64}$`                   // visible ASCII without the comma that separates values
	pathPattern     = `^/[!-"$->@-~]*$`                     // visible ASCII without '?' and '#'
	numberPattern   = `^-?(0|[1-9][0-9]*)$`                 // one spelling per number
)

var (
	durationForm = regexp.MustCompile(durationPattern)
	nameForm     = regexp.MustCompile(namePattern)
	headerForm   = regexp.MustCompile(headerPattern)
	methodForm   = regexp.MustCompile(methodPattern)
	classForm    = regexp.MustCompile(classPattern)
	pathForm     = regexp.MustCompile(pathPattern)
	numberForm   = regexp.MustCompile(numberPattern)
)

// numberLeaf is a whole number between lo and hi.
func numberLeaf(lo, hi int) leaf[int] {
	return leaf[int]{
		shape: shape{
			typ:    "a whole number",
			limits: fmt.Sprintf("%d to %d", lo, hi),
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(float64(lo)), Maximum: jsonschema.Ptr(float64(hi))}
			},
		},
		read: func(d *decoder, n *yaml.Node) (int, bool) { return d.number(n, lo, hi) },
	}
}

func (d *decoder) number(n *yaml.Node, lo, hi int) (int, bool) {
	const what = "a whole number"
	if !d.is(n, yaml.ScalarNode, what) {
		return 0, false
	}
	decimal := numberForm.MatchString(n.Value)
	if n.ShortTag() != "!!int" || !decimal {
		hint := "write it in plain decimal digits"
		if decimal {
			hint = "remove the quotes"
		}
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), hint)
		return 0, false
	}
	v, err := strconv.Atoi(n.Value)
	if err != nil || v < lo || v > hi {
		d.errorNode(n, quoteless(n.Value)+" is out of range", fmt.Sprintf("%d to %d", lo, hi))
		return 0, false
	}
	return v, true
}

// durationLeaf is a Go duration between lo and hi.
func durationLeaf(lo, hi time.Duration) leaf[time.Duration] {
	limits := fmt.Sprintf("%s to %s", short(lo), short(hi))
	return leaf[time.Duration]{
		shape: shape{
			typ:    "a duration such as 250ms, 2.5s or 1h30m",
			limits: limits,
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "string", Pattern: durationPattern}
			},
		},
		read: func(d *decoder, n *yaml.Node) (time.Duration, bool) {
			v, ok := d.duration(n)
			if ok && (v < lo || v > hi) {
				d.errorNode(n, short(v)+" is out of range", limits)
				return 0, false
			}
			return v, ok
		},
	}
}

func (d *decoder) duration(n *yaml.Node) (time.Duration, bool) {
	const what = "a duration with a unit"
	if !d.is(n, yaml.ScalarNode, what) {
		return 0, false
	}
	switch n.ShortTag() {
	case "!!str":
	case "!!int", "!!float":
		hint := "add a unit"
		if len(n.Value) <= maxQuoted {
			hint += fmt.Sprintf(": %sms or %ss", n.Value, n.Value)
		}
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), hint)
		return 0, false
	default:
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), "such as 250ms, 2.5s or 1h30m")
		return 0, false
	}
	v, err := time.ParseDuration(n.Value)
	if err != nil || !durationForm.MatchString(n.Value) {
		d.errorNode(n, quote(n.Value)+" is not a duration", "write digits and a unit, such as 250ms, 2.5s or 1h30m")
		return 0, false
	}
	return v, true
}

// short renders a duration as an author would: without the zero units Go appends.
func short(v time.Duration) string {
	s := v.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// boolLeaf is true or false.
func boolLeaf() leaf[bool] {
	return leaf[bool]{
		shape: shape{typ: "`true` or `false`", schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }},
		read:  func(d *decoder, n *yaml.Node) (bool, bool) { return d.boolean(n) },
	}
}

func (d *decoder) boolean(n *yaml.Node) (bool, bool) {
	const what = "true or false"
	if !d.is(n, yaml.ScalarNode, what) {
		return false, false
	}
	if n.ShortTag() != "!!bool" || (n.Value != "true" && n.Value != "false") {
		hint := "write it in lower case, without quotes"
		if n.ShortTag() != "!!bool" && n.ShortTag() != "!!str" {
			hint = ""
		}
		d.errorNode(n, fmt.Sprintf("expected %s, found %s", what, describe(n)), hint)
		return false, false
	}
	return n.Value == "true", true
}

// wordLeaf is one word of a closed set; the value of words[i] is V(i). Words in later are refused as not yet
// available.
func wordLeaf[V ~uint8](words []string, later ...string) leaf[V] {
	return leaf[V]{
		shape: shape{
			typ: "`" + strings.Join(words, "` or `") + "`",
			schema: func() *jsonschema.Schema {
				s := &jsonschema.Schema{Type: "string"}
				for _, w := range words {
					s.Enum = append(s.Enum, w)
				}
				return s
			},
		},
		read: func(d *decoder, n *yaml.Node) (V, bool) {
			got, ok := d.text(n, strings.Join(words, " or "))
			if !ok {
				return 0, false
			}
			if slices.Contains(later, got) {
				d.notYet(n, got)
				return 0, false
			}
			i := slices.Index(words, got)
			if i < 0 {
				d.errorNode(n, fmt.Sprintf("%s is not %s", quote(got), strings.Join(words, " or ")), suggest(got, "one of", words))
				return 0, false
			}
			return V(i), true
		},
	}
}

// nameLeaf is the name of a tier or a route; reserved names have a meaning elsewhere.
func nameLeaf(reserved ...string) leaf[string] {
	return leaf[string]{
		shape: shape{
			typ:    "a name: lower-case letters, digits, `_` and `-`, beginning with a letter or digit",
			limits: "1 to 63 characters; not `" + strings.Join(reserved, "`, `") + "`",
			schema: func() *jsonschema.Schema { return nameSchema(reserved) },
		},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			got, ok := d.text(n, "a name")
			return got, ok && d.checkName(n, got, reserved)
		},
	}
}

func nameSchema(reserved []string) *jsonschema.Schema {
	not := &jsonschema.Schema{}
	for _, r := range reserved {
		not.Enum = append(not.Enum, r)
	}
	return &jsonschema.Schema{Type: "string", Pattern: namePattern, Not: not}
}

func (d *decoder) checkName(n *yaml.Node, got string, reserved []string) bool {
	if !nameForm.MatchString(got) {
		d.errorNode(n, quote(got)+" is not a valid name", "1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit")
		return false
	}
	if slices.Contains(reserved, got) {
		d.errorNode(n, quote(got)+" is a reserved name", "reserved are "+strings.Join(reserved, ", "))
		return false
	}
	return true
}

// maxPath bounds a path of the file; Envoy refuses far longer ones by default.
const maxPath = 2048

// pathLeaf is a path or its beginning.
func pathLeaf() leaf[string] {
	return leaf[string]{
		shape: shape{
			typ:    "a path: begins with `/`, visible ASCII, no `?` and no `#`",
			limits: fmt.Sprintf("1 to %d characters", maxPath),
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{Type: "string", Pattern: pathPattern, MaxLength: jsonschema.Ptr(maxPath)}
			},
		},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			got, ok := d.text(n, "a path")
			if !ok || (pathForm.MatchString(got) && len(got) <= maxPath) {
				if plain, same := plainPath(got); ok && !same {
					d.errorNode(n, quote(got)+" is no spelling of a path that ever arrives: Envoy makes every path plain before routing",
						"write "+quote(plain))
					return "", false
				}
				return got, ok
			}
			d.errorNode(n, quote(got)+" is not a path", pathHint(got))
			return "", false
		},
	}
}

// plainPath is path in the one spelling that reaches the matcher (Envoy: normalize_path, merge_slashes,
// path_with_escaped_slashes_action), and whether path is that already.
func plainPath(p string) (string, bool) {
	plain := strings.ReplaceAll(p, `\`, "/")
	if u, err := url.PathUnescape(plain); err == nil {
		plain = (&url.URL{Path: u}).EscapedPath()
	}
	end := ""
	if strings.HasSuffix(plain, "/") && plain != "/" {
		end = "/"
	}
	plain = path.Clean(plain) + end
	if plain == "//" {
		plain = "/"
	}
	return plain, plain == p
}

func pathHint(got string) string {
	switch {
	case !strings.HasPrefix(got, "/"):
		return "begin it with /"
	case strings.ContainsAny(got, "?#"):
		return "paths are compared without their query: end it before ? or #"
	case len(got) > maxPath:
		return fmt.Sprintf("at most %d characters", maxPath)
	}
	return "percent-encode what is not visible ASCII"
}

// versionLeaf is the version of the policy language.
func versionLeaf() leaf[int] {
	return leaf[int]{
		shape: shape{
			typ:    "the number 1",
			schema: func() *jsonschema.Schema { return &jsonschema.Schema{Const: jsonschema.Ptr[any](version)} },
		},
		read: func(d *decoder, n *yaml.Node) (int, bool) {
			v, ok := d.number(n, 0, 1<<31-1)
			if ok && v != version {
				d.errorNode(n, fmt.Sprintf("version %d is not known", v), fmt.Sprintf("this brownout reads version %d", version))
				return 0, false
			}
			return v, ok
		},
	}
}
