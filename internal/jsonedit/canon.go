package jsonedit

import (
	"bytes"
	"slices"
)

// Canon is a canonical form of documents, in the manner of RFC 8785: no white space, keys sorted, each string and each
// number written in one way. Unlike there, keys are sorted by their bytes and numbers are exact: they are never
// rounded to what a float can hold.
type Canon struct {
	// Ignore are members at the top of an object that are left out.
	Ignore []string
	// Text says of the string at a path whether its white space is trimmed and collapsed. A path is the keys that lead
	// to it, with "#" for the elements of an array. It must not be kept. Nil: every string stays as it is.
	Text func(path []string) bool
}

// Append appends the canonical form of doc to dst. On an error dst is returned as it was: ErrInvalid, ErrDuplicate if
// any object has a key twice, ErrTooLarge if the document nests deeper than MaxDepth or has a number with an exponent
// out of all reach.
func (c Canon) Append(dst, doc []byte) ([]byte, error) {
	if err := check(doc); err != nil {
		return dst, err
	}
	w := writer{canon: c, rest: SkipSpace(doc), out: dst}
	if err := w.value(); err != nil {
		return dst, err
	}
	return w.out, nil
}

// writer writes one document. It goes through it once.
type writer struct {
	canon   Canon
	rest    []byte // not read yet; begins with the next value
	out     []byte
	path    []string
	parts   []part // of the objects that are being written, innermost last
	scratch []byte
}

// part is a member that has been written: where it lies in out.
type part struct{ key, value, end int }

// value writes the next value.
func (w *writer) value() error {
	switch w.rest[0] {
	case '{':
		return w.object()
	case '[':
		return w.array()
	case '"':
		n := StringEnd(w.rest)
		collapse := w.canon.Text != nil && w.canon.Text(w.path)
		w.out = appendCanonical(w.out, w.rest[:n], collapse)
		w.rest = w.rest[n:]
		return nil
	case 't', 'f', 'n':
		n := ValueEnd(w.rest)
		w.out = append(w.out, w.rest[:n]...)
		w.rest = w.rest[n:]
		return nil
	}
	n := ValueEnd(w.rest)
	var err error
	w.out, err = appendNumber(w.out, w.rest[:n])
	w.rest = w.rest[n:]
	return err
}

func (w *writer) array() error {
	w.out = append(w.out, '[')
	w.rest = SkipSpace(w.rest[1:])
	w.path = append(w.path, "#")
	for i := 0; w.rest[0] != ']'; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(); err != nil {
			return err
		}
		w.rest = SkipSpace(w.rest)
	}
	w.path = w.path[:len(w.path)-1]
	w.out, w.rest = append(w.out, ']'), w.rest[1:]
	return nil
}

// object writes the members in the order in which they come, and then puts them into the order of their keys.
func (w *writer) object() error {
	w.out = append(w.out, '{')
	w.rest = SkipSpace(w.rest[1:])
	first := len(w.parts)
	for w.rest[0] != '}' {
		if err := w.member(); err != nil {
			return err
		}
		w.rest = SkipSpace(w.rest)
	}
	w.rest = w.rest[1:]
	if err := w.arrange(w.parts[first:]); err != nil {
		return err
	}
	w.parts = w.parts[:first]
	w.out = append(w.out, '}')
	return nil
}

// member writes one member with a comma behind it.
func (w *writer) member() error {
	n := StringEnd(w.rest)
	p := part{key: len(w.out)}
	w.out = appendCanonical(w.out, w.rest[:n], false)
	w.rest = SkipSpace(w.rest[n:])
	p.value = len(w.out)
	key := w.out[p.key+1 : p.value-1]
	w.out = append(w.out, ':')
	top := len(w.path) == 0
	if w.canon.Text != nil {
		w.path = append(w.path, string(key))
	} else {
		w.path = append(w.path, "")
	}
	ignored := top && slices.Contains(w.canon.Ignore, string(key))
	err := w.value()
	w.path = w.path[:len(w.path)-1]
	if ignored {
		w.out = w.out[:p.value]
	}
	w.out = append(w.out, ',')
	p.end = len(w.out)
	w.parts = append(w.parts, p)
	return err
}

// arrange sorts the members that out ends with, drops those that are ignored and the last comma.
func (w *writer) arrange(parts []part) error {
	if len(parts) == 0 {
		return nil
	}
	begin := parts[0].key
	byKey := func(a, b part) int { return bytes.Compare(w.out[a.key:a.value], w.out[b.key:b.value]) }
	sorted := slices.IsSortedFunc(parts, byKey)
	if !sorted {
		slices.SortFunc(parts, byKey)
	}
	for i := 1; i < len(parts); i++ {
		if byKey(parts[i-1], parts[i]) == 0 {
			return ErrDuplicate
		}
	}
	if !sorted || slices.ContainsFunc(parts, part.ignored) {
		w.scratch = append(w.scratch[:0], w.out[begin:]...)
		w.out = w.out[:begin]
		for _, p := range parts {
			if !p.ignored() {
				w.out = append(w.out, w.scratch[p.key-begin:p.end-begin]...)
			}
		}
	}
	w.out = bytes.TrimSuffix(w.out, []byte{','})
	return nil
}

// ignored says whether only the key was written, so that one that is there twice is still found.
func (p part) ignored() bool { return p.end == p.value+1 }
