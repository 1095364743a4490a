package deadline

import (
	"math/big"
	"regexp"
	"slices"
	"testing"
	"time"
)

func TestParseMillis(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"500", 500 * time.Millisecond, true},
		{" 500", 500 * time.Millisecond, true},
		{"\t500 ", 500 * time.Millisecond, true},
		{"0", 0, true},
		{"-5", -5 * time.Millisecond, true},
		{"007", 7 * time.Millisecond, true},
		{"9223372036854775807", maxDuration, true},
		{"-9223372036854775807", -maxDuration, true},
		{"99999999999999999999", 0, false},
		{"1e3", 0, false}, {"500ms", 0, false}, {"2500.5", 0, false}, {"+5", 0, false}, {"", 0, false}, {"-", 0, false},
		{"5 0", 0, false}, {"٥", 0, false}, {"0x10", 0, false}, {"NaN", 0, false},
	} {
		got, ok := ParseMillis(c.in)
		if got != c.want || ok != c.ok {
			t.Errorf("ParseMillis(%q) = %v, %t; want %v, %t", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestParseGRPCTimeout(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"1H", time.Hour, true}, {"2M", 2 * time.Minute, true}, {"3S", 3 * time.Second, true},
		{"250m", 250 * time.Millisecond, true}, {"7u", 7 * time.Microsecond, true}, {"9n", 9, true},
		{"0S", 0, true}, {"-1S", -time.Second, true}, {"99999999H", maxDuration, true},
		{"123456789S", 0, false}, {"5", 0, false}, {"S", 0, false}, {"5s", 0, false}, {"1.5S", 0, false}, {"", 0, false},
	} {
		got, ok := ParseGRPCTimeout(c.in)
		if got != c.want || ok != c.ok {
			t.Errorf("ParseGRPCTimeout(%q) = %v, %t; want %v, %t", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestValuesSplitsACommaList(t *testing.T) {
	var got []string
	Values("900, 300 ,,\tx", func(s string) bool { got = append(got, s); return true })
	if want := []string{"900", "300", "", "x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	n := 0
	Values("1,2,3", func(string) bool { n++; return false })
	if n != 1 {
		t.Errorf("went on after the consumer stopped: %d values", n)
	}
}

// FuzzParseMillis compares with math/big behind a regular expression for the grammar.
func FuzzParseMillis(f *testing.F) {
	for _, s := range []string{"500", " 500", "-5", "0", "1e3", "500ms", "2500.5", "99999999999999999999", "-9223372036854775808", "+1", ""} {
		f.Add(s)
	}
	grammar := regexp.MustCompile(`^-?[0-9]+$`)
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseMillis(s)
		trimmed := trimOWS(s)
		n, isInt := new(big.Int).SetString(trimmed, 10)
		isInt = isInt && grammar.MatchString(trimmed) && new(big.Int).Abs(n).IsInt64()
		if ok != isInt {
			t.Fatalf("ParseMillis(%q) ok=%t, the oracle says %t", s, ok, isInt)
		}
		if ok {
			checkSaturated(t, s, got, new(big.Int).Mul(n, big.NewInt(int64(time.Millisecond))))
		}
	})
}

// FuzzParseGRPCTimeout compares with math/big likewise.
func FuzzParseGRPCTimeout(f *testing.F) {
	for _, s := range []string{"1H", "250m", "0S", "-1S", "99999999H", "123456789S", "5", "S"} {
		f.Add(s)
	}
	grammar := regexp.MustCompile(`^(-?[0-9]{1,8})([HMSmun])$`)
	units := map[string]time.Duration{"H": time.Hour, "M": time.Minute, "S": time.Second, "m": time.Millisecond, "u": time.Microsecond, "n": 1}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseGRPCTimeout(s)
		m := grammar.FindStringSubmatch(trimOWS(s))
		if ok != (m != nil) {
			t.Fatalf("ParseGRPCTimeout(%q) ok=%t, the grammar says %t", s, ok, m != nil)
		}
		if ok {
			n, _ := new(big.Int).SetString(m[1], 10)
			checkSaturated(t, s, got, n.Mul(n, big.NewInt(int64(units[m[2]]))))
		}
	})
}

func checkSaturated(t *testing.T, in string, got time.Duration, exact *big.Int) {
	t.Helper()
	switch limit := big.NewInt(int64(maxDuration)); {
	case exact.CmpAbs(limit) <= 0:
		if exact.Cmp(big.NewInt(int64(got))) != 0 && exact.CmpAbs(new(big.Int).Sub(limit, big.NewInt(int64(time.Hour)))) < 0 {
			t.Fatalf("%q: got %d, want %s", in, got, exact)
		}
	case exact.Sign() > 0 && got != maxDuration, exact.Sign() < 0 && got != -maxDuration:
		t.Fatalf("%q: got %d, want saturation of %s", in, got, exact)
	}
}
