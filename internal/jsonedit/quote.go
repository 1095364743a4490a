package jsonedit

import (
	"unicode"
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// AppendQuoted appends s as a JSON string, in the form that Canon writes. What is no UTF-8 becomes U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		dst = appendRune(dst, r)
	}
	return append(dst, '"')
}

// appendRune appends a character as it stands in a string: only what must be escaped is (RFC 8785 §3.2.2.2).
func appendRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	if r < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// appendCanonical appends a string of a valid document, quotes included, in its one form: characters stand for
// themselves where they can. Half a surrogate pair stays an escape, and bytes that are no UTF-8 stay as they are, so
// that strings which differ stay different. With collapse, white space at the ends is dropped and elsewhere becomes
// one space.
func appendCanonical(dst, quoted []byte, collapse bool) []byte {
	dst = append(dst, '"')
	in := quoted[1 : len(quoted)-1]
	start, gap := len(dst), false
	for len(in) > 0 {
		if n := plain(in); n > 0 { // most of most strings
			if gap && len(dst) > start {
				dst = append(dst, ' ')
			}
			dst, in, gap = append(dst, in[:n]...), in[n:], false
			continue
		}
		if in[0] == ' ' && !collapse {
			dst, in = append(dst, ' '), in[1:]
			continue
		}
		r, n, lone := decode(in)
		if collapse && !lone && unicode.IsSpace(r) {
			gap, in = true, in[n:]
			continue
		}
		if gap && len(dst) > start {
			dst = append(dst, ' ')
		}
		gap = false
		switch {
		case lone:
			dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		case r == utf8.RuneError && n == 1:
			dst = append(dst, in[0])
		default:
			dst = appendRune(dst, r)
		}
		in = in[n:]
	}
	return append(dst, '"')
}

// plain is how many bytes at the beginning stand for themselves and are no white space.
func plain(in []byte) int {
	for i, c := range in {
		if c <= ' ' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(in)
}

// decode reads one character of a string's inside: r, written with n bytes. lone: it is half a surrogate pair. A byte
// that is no UTF-8 is utf8.RuneError of one byte.
func decode(in []byte) (r rune, n int, lone bool) {
	if in[0] != '\\' {
		r, n = utf8.DecodeRune(in)
		return r, n, false
	}
	switch in[1] {
	case 'b':
		return '\b', 2, false
	case 't':
		return '\t', 2, false
	case 'n':
		return '\n', 2, false
	case 'f':
		return '\f', 2, false
	case 'r':
		return '\r', 2, false
	case 'u':
		return decodeUnit(in)
	}
	return rune(in[1]), 2, false
}

// decodeUnit reads an escaped UTF-16 unit, or two that are a pair.
func decodeUnit(in []byte) (r rune, n int, lone bool) {
	r = unit(in[2:6])
	switch {
	case r < 0xD800 || r > 0xDFFF:
		return r, 6, false
	case r < 0xDC00 && len(in) >= 12 && in[6] == '\\' && in[7] == 'u':
		if low := unit(in[8:12]); 0xDC00 <= low && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, 12, false
		}
	}
	return r, 6, true
}

// unit reads four hexadecimal digits.
func unit(digits []byte) (r rune) {
	for _, c := range digits {
		switch {
		case c <= '9':
			r = r<<4 | rune(c-'0')
		default:
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}
