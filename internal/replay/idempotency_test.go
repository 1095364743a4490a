package replay_test

import (
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/internal/replay"
)

func TestParseIdempotencyKey(t *testing.T) {
	long := strings.Repeat("x", 255)
	for name, c := range map[string]struct {
		lines []string
		want  string // "": malformed
	}{
		"structured string":    {[]string{`"abc"`}, "abc"},
		"bare":                 {[]string{`abc`}, "abc"},
		"blanks around":        {[]string{"\t abc "}, "abc"},
		"blanks within":        {[]string{"order 17"}, "order 17"},
		"escapes":              {[]string{`"a\"b\\c"`}, `a"b\c`},
		"a comma in quotes":    {[]string{`"a,b"`}, "a,b"},
		"255 characters":       {[]string{long}, long},
		"255 in quotes":        {[]string{`"` + long + `"`}, long},
		"256 characters":       {[]string{long + "x"}, ""},
		"300 characters":       {[]string{strings.Repeat("x", 300)}, ""},
		"no line":              {nil, ""},
		"two lines":            {[]string{"abc", "abc"}, ""},
		"two lines merged":     {[]string{"abc, def"}, ""},
		"two strings merged":   {[]string{`"abc", "def"`}, ""},
		"empty":                {[]string{""}, ""},
		"blank":                {[]string{"  "}, ""},
		"empty string":         {[]string{`""`}, ""},
		"CR LF":                {[]string{"a\r\nb"}, ""},
		"tab within":           {[]string{"a\tb"}, ""},
		"not ASCII":            {[]string{"schlüssel"}, ""},
		"delete":               {[]string{"a\x7f"}, ""},
		"no end of string":     {[]string{`"abc`}, ""},
		"a quote alone":        {[]string{`"`}, ""},
		"a quote in a bare":    {[]string{`a"b`}, ""},
		"a bad escape":         {[]string{`"a\nb"`}, ""},
		"an escape at the end": {[]string{`"a\`}, ""},
		"more after the end":   {[]string{`"abc"d`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := replay.ParseIdempotencyKey(c.lines); got != c.want || ok != (c.want != "") {
				t.Errorf("%q, %t; want %q", got, ok, c.want)
			}
		})
	}
}

// FuzzParseIdempotencyKey: what is accepted is printable, bounded, and the same when it is written as a structured string.
func FuzzParseIdempotencyKey(f *testing.F) {
	for _, s := range []string{"abc", `"abc"`, `"a\"\\"`, `"`, "a b", `"a,b" `, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, ok := replay.ParseIdempotencyKey([]string{line})
		if !ok {
			if key != "" {
				t.Errorf("refused with key %q", key)
			}
			return
		}
		if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("accepted %q", key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, ok := replay.ParseIdempotencyKey([]string{quoted}); !ok || again != key {
			t.Errorf("%q is %q as a string, %t", key, again, ok)
		}
	})
}
