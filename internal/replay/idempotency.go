package replay

import "strings"

// maxIdempotencyKey is the most characters of an idempotency key.
const maxIdempotencyKey = 255

// ParseIdempotencyKey reads the lines of an idempotency-key header: exactly one, which is a structured-field string
// (RFC 9651 §3.3.3, as the IETF draft has it) or the same characters bare, as callers write it. key is without quotes:
// 1 to 255 characters of printable ASCII. A bare key has no comma, for that is what two lines look like once a proxy has
// merged them, and no quote.
func ParseIdempotencyKey(lines []string) (key string, ok bool) {
	if len(lines) != 1 {
		return "", false
	}
	s := strings.Trim(lines[0], " \t")
	if strings.HasPrefix(s, `"`) {
		s, ok = unquote(s)
	} else {
		ok = !strings.ContainsAny(s, `",`)
	}
	if !ok || len(s) < 1 || len(s) > maxIdempotencyKey || !printable(s) {
		return "", false
	}
	return s, true
}

// unquote takes the quotes and backslashes off a structured-field string.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), i == len(s)-1
		case c != '\\':
			b.WriteByte(c)
		case i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		default:
			return "", false
		}
	}
	return "", false
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
