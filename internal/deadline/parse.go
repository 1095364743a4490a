package deadline

import (
	"math"
	"strings"
	"time"
)

// maxDuration stands for every number too large for a time.Duration: policy caps come far below it.
const maxDuration = time.Duration(math.MaxInt64)

// ParseMillis reads an integer number of milliseconds. Blanks around it are fine (RFC 9110 §5.5); a fraction, an
// exponent, a unit, a plus sign, or a number beyond int64 is not a number. Values too large for a Duration saturate.
func ParseMillis(s string) (time.Duration, bool) {
	n, ok := parseInt(trimOWS(s))
	if !ok {
		return 0, false
	}
	return saturate(n, time.Millisecond), true
}

// ParseGRPCTimeout reads a grpc-timeout value: at most eight digits and one of H, M, S, m, u, n (gRPC over HTTP/2,
// Requests). A leading minus is read, so that it counts as time gone rather than as no bound at all.
func ParseGRPCTimeout(s string) (time.Duration, bool) {
	s = trimOWS(s)
	if len(s) < 2 {
		return 0, false
	}
	unit, ok := grpcUnit(s[len(s)-1])
	digits := s[:len(s)-1]
	if !ok || len(strings.TrimPrefix(digits, "-")) > 8 {
		return 0, false
	}
	n, ok := parseInt(digits)
	if !ok {
		return 0, false
	}
	return saturate(n, unit), true
}

func grpcUnit(c byte) (time.Duration, bool) {
	switch c {
	case 'H':
		return time.Hour, true
	case 'M':
		return time.Minute, true
	case 'S':
		return time.Second, true
	case 'm':
		return time.Millisecond, true
	case 'u':
		return time.Microsecond, true
	case 'n':
		return time.Nanosecond, true
	}
	return 0, false
}

// parseInt reads an optional minus and decimal digits; strconv.ParseInt would also take a plus sign.
func parseInt(s string) (int64, bool) {
	neg := strings.HasPrefix(s, "-")
	if neg {
		s = s[1:]
	}
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if neg {
		n = -n
	}
	return n, true
}

func saturate(n int64, unit time.Duration) time.Duration {
	if n > int64(maxDuration/unit) {
		return maxDuration
	}
	if n < -int64(maxDuration/unit) {
		return -maxDuration
	}
	return time.Duration(n) * unit
}

// trimOWS removes the optional whitespace of RFC 9110 §5.6.3: space and horizontal tab.
func trimOWS(s string) string { return strings.Trim(s, " \t") }

// Values yields the members of a comma list, blanks removed. A header sent twice and a list count alike.
func Values(s string, yield func(string) bool) {
	for {
		head, rest, more := strings.Cut(s, ",")
		if !yield(trimOWS(head)) || !more {
			return
		}
		s = rest
	}
}
