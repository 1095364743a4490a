package jsonedit

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// Valid says whether p is one JSON value that nests no deeper than MaxDepth.
func Valid(p []byte) bool { return !tooDeep(p) && gjson.ValidBytes(p) }

// tooDeep says whether brackets nest deeper than MaxDepth. p need not be valid.
func tooDeep(p []byte) bool {
	if bytes.Count(p, []byte{'{'})+bytes.Count(p, []byte{'['}) <= MaxDepth {
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
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Open says whether p ends inside a string or a bracket, as half a document does. p need not be valid.
func Open(p []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
	}
	return quoted || depth > 0
}

// check says why a document cannot be read; nil if it can.
func check(doc []byte) error {
	switch {
	case tooDeep(doc):
		return ErrTooLarge
	case !gjson.ValidBytes(doc):
		return ErrInvalid
	}
	return nil
}

// SkipSpace skips what stands between the values of a valid document: white space, commas and colons.
func SkipSpace(p []byte) []byte {
	for i, c := range p {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return p[i:]
		}
	}
	return nil
}

// StringEnd is where the string that p begins with ends; p is part of a valid document. Keys and words are short,
// images are not.
func StringEnd(p []byte) int {
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

// escapedEnd is StringEnd for strings with escapes.
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

// ValueEnd is where the value that p begins with ends; p is part of a valid document.
func ValueEnd(p []byte) int {
	switch p[0] {
	case '"':
		return StringEnd(p)
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
			i += StringEnd(p[i:])
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
