package dialect

import (
	"bytes"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/envoy-brownout/brownout/internal/jsonedit"
)

// text is one JSON value as it stands in its document, which is known to be valid, or nil. It is read where it lies:
// nothing is decoded or copied unless asked for.
type text []byte

// parse reads a document; false if it is no JSON, or nests too deep to be read.
func parse(p []byte) (text, bool) {
	p = bytes.Trim(p, " \t\r\n")
	if len(p) == 0 || !jsonedit.Valid(p) {
		return nil, false
	}
	return p, true
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

// isNumber says whether the value is a whole number that is no less than zero, or one in quotes.
func (t text) isNumber() bool {
	_, ok := t.number()
	return ok
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
	p := jsonedit.SkipSpace(w.rest)
	if len(p) == 0 || p[0] != '"' {
		return false
	}
	end := jsonedit.StringEnd(p)
	w.key = p[1 : end-1]
	if bytes.IndexByte(w.key, '\\') >= 0 {
		w.key = []byte(text(p[:end]).decoded())
	}
	w.take(jsonedit.SkipSpace(p[end:])) // the colon counts as space
	return true
}

// nextElement steps to the next element.
func (w *walker) nextElement() bool {
	p := jsonedit.SkipSpace(w.rest)
	if len(p) == 0 || p[0] == ']' {
		return false
	}
	w.take(p)
	return true
}

func (w *walker) take(p []byte) {
	n := jsonedit.ValueEnd(p)
	w.value, w.rest = text(p[:n]), p[n:]
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

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
