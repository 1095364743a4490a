package dialect

import (
	"bytes"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// maxDepth bounds how deeply nested a document may be to be read: validation recurses. Deeper ones pass unread.
const maxDepth = 128

// text is one JSON value as it stands in its document, which is known to be valid, or nil. It is read where it lies:
// nothing is decoded or copied unless asked for.
type text []byte

// parse reads a document; false if it is no JSON.
func parse(p []byte) (text, bool) {
	p = bytes.Trim(p, " \t\r\n")
	if len(p) == 0 || tooDeep(p) || !gjson.ValidBytes(p) {
		return nil, false
	}
	return p, true
}

// tooDeep says whether brackets nest deeper than maxDepth. p need not be valid.
func tooDeep(p []byte) bool {
	if bytes.Count(p, []byte{'{'})+bytes.Count(p, []byte{'['}) <= maxDepth {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func (t text) begins(c byte) bool { return len(t) > 0 && t[0] == c }
func (t text) object() bool       { return t.begins('{') }
func (t text) array() bool        { return t.begins('[') }
func (t text) quoted() bool       { return t.begins('"') }

// set says whether the value says anything: it is there and neither null, false nor an empty string.
func (t text) set() bool {
	return len(t) > 0 && t[0] != 'n' && t[0] != 'f' && (t[0] != '"' || len(t) > 2)
}

// isTrue says whether the value is the literal true.
func (t text) isTrue() bool { return t.begins('t') }

// isFalse says whether the value is the literal false.
func (t text) isFalse() bool { return t.begins('f') }

// is says whether the value is the string s, which needs no escapes.
func (t text) is(s string) bool { return string(t.inner()) == s }

// inner is what stands between the quotes of a string, escapes and all; nil for other values.
func (t text) inner() []byte {
	if !t.quoted() {
		return nil
	}
	return t[1 : len(t)-1]
}

// decoded is a string's value.
func (t text) decoded() string {
	if !t.quoted() {
		return ""
	}
	return gjson.ParseBytes(t).String()
}

// number is a whole number, or one in quotes; false for anything else and for what no count can be.
func (t text) number() (int, bool) {
	digits := []byte(t)
	if t.quoted() {
		digits = t.inner()
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return min(n, math.MaxInt32), true
}

// count is a number, or 0.
func (t text) count() int {
	n, _ := t.number()
	return n
}

// visible says whether a string holds anything but white space.
func (t text) visible() bool {
	in := t.inner()
	if bytes.IndexByte(in, '\\') >= 0 {
		in = []byte(t.decoded())
	}
	for len(in) > 0 {
		r, n := utf8.DecodeRune(in)
		if !unicode.IsSpace(r) {
			return true
		}
		in = in[n:]
	}
	return false
}

// get is the value of a member; of several of the same name the last, as clients read it.
func (t text) get(key string) (found text) {
	for m := t.members(); m.next(); {
		if string(m.key) == key {
			found = m.value
		}
	}
	return found
}

// pick is get for several members in one walk: found[i] becomes the value of keys[i]. Others stay nil.
func (t text) pick(found []text, keys ...string) {
	for m := t.members(); m.next(); {
		for i, k := range keys {
			if string(m.key) == k {
				found[i] = m.value
				break
			}
		}
	}
}

// walker goes through the members of an object or the elements of an array.
type walker struct {
	rest  []byte
	key   []byte // of the current member
	value text
}

// members walks an object; nothing else has members.
func (t text) members() walker {
	if !t.object() {
		return walker{}
	}
	return walker{rest: t[1:]}
}

// elements walks an array; nothing else has elements.
func (t text) elements() walker {
	if !t.array() {
		return walker{}
	}
	return walker{rest: t[1:]}
}

// next steps to the next member.
func (w *walker) next() bool {
	p := skipSpace(w.rest)
	if len(p) == 0 || p[0] != '"' {
		return false
	}
	end := stringEnd(p)
	w.key = p[1 : end-1]
	if bytes.IndexByte(w.key, '\\') >= 0 {
		w.key = []byte(text(p[:end]).decoded())
	}
	w.take(skipSpace(p[end:])) // the colon counts as space
	return true
}

// nextElement steps to the next element.
func (w *walker) nextElement() bool {
	p := skipSpace(w.rest)
	if len(p) == 0 || p[0] == ']' {
		return false
	}
	w.take(p)
	return true
}

func (w *walker) take(p []byte) {
	n := valueEnd(p)
	w.value, w.rest = text(p[:n]), p[n:]
}

// skipSpace skips what stands between the values of a valid document.
func skipSpace(p []byte) []byte {
	for i, c := range p {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return p[i:]
		}
	}
	return nil
}

// stringEnd is where the string that p begins with ends. Keys and words are short, images are not.
func stringEnd(p []byte) int {
	for i := 1; i < min(len(p), 24); i++ {
		switch p[i] {
		case '\\':
			return escapedEnd(p)
		case '"':
			return i + 1
		}
	}
	end := bytes.IndexByte(p[1:], '"') + 2
	if p[end-2] != '\\' {
		return end
	}
	return escapedEnd(p)
}

// escapedEnd is stringEnd for strings with escapes.
func escapedEnd(p []byte) int {
	for i := 1; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(p)
}

// valueEnd is where the value that p begins with ends.
func valueEnd(p []byte) int {
	switch p[0] {
	case '"':
		return stringEnd(p)
	case '{', '[':
		return nestEnd(p)
	}
	for i, c := range p {
		switch c {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return len(p)
}

func nestEnd(p []byte) int {
	depth := 0
	for i := 0; i < len(p); {
		switch p[i] {
		case '"':
			i += stringEnd(p[i:])
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(p)
}

// keep is a copy of a value on one line, or nil if it is larger than limit bytes.
func (t text) keep(limit int) text {
	if len(t) == 0 || len(t) > limit {
		return nil
	}
	kept := bytes.Clone(t)
	for i, c := range kept {
		if c == '\n' || c == '\r' { // never inside a string
			kept[i] = ' '
		}
	}
	return kept
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', '0'+byte(r>>4), "0123456789abcdef"[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
