package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCanonicalForm(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"keys are sorted and white space goes", "{ \"b\" : 1 ,\n\"a\" : [ 1 , { \"d\":2, \"c\":3 } ] }", `{"a":[1,{"c":3,"d":2}],"b":1}`},
		{"a key in escapes is the key", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"strings have one form", `["\u0041\/\u00e9\u000a\u001F\"\\", "\ud83d\ude00"]`, `["A/é\n\u001f\"\\","😀"]`},
		{"half surrogates stay apart", `["\uD800","\udfff","\ud800\ud800\udc00"]`, `["\ud800","\udfff","\ud800𐀀"]`},
		{"bytes that are no UTF-8 stay apart", "[\"\xff\",\"\xfe\",\"\uFFFD\",\"\\ufffd\"]", "[\"\xff\",\"\xfe\",\"\uFFFD\",\"\uFFFD\"]"},
		{"white space in strings stays", `[" a  b\t"]`, `[" a  b\t"]`},
		{"nothing is empty", `[{},[],"",null,true,false]`, `[{},[],"",null,true,false]`},
		{"numbers have one form", `[1,1.0,1e0,10e-1,0.1E1]`, `[1,1,1,1,1]`},
		{"an exponent out of all reach is refused", `[0E+9999999999999999]`, ``},
		{"zero has one form", `[0,-0,0.0,-0.00e9]`, `[0,0,0,0]`},
		{"fractions", `[0.5,5e-1,-12.50,0.00001,1e-7,100,1e3,1e6,1e7,123e5]`, `[0.5,0.5,-12.5,0.00001,1e-7,100,1000,1000000,1e7,12300000]`},
		{"nothing is rounded", `[12345678901234567890123,0.12345678901234567890123,1e400,9007199254740993]`, `[12345678901234567890123,0.12345678901234567890123,1e400,9007199254740993]`},
		{"exponents are not worked out", `[1e999999999999999]`, `[1e999999999999999]`},
	} {
		got, err := Canon{}.Append(nil, []byte(c.doc))
		if c.want == "" {
			if !errors.Is(err, ErrTooLarge) || got != nil {
				t.Errorf("%s: got %q, %v", c.name, got, err)
			}
			continue
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
	}
}

func TestCanonRefusesWhatItCannotCompare(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for doc, want := range map[string]error{
		`{"a":1,"a":1}`: ErrDuplicate, `[{"b":{"a":1,"\u0061":2}}]`: ErrDuplicate, `{"x":1,"x":2}`: ErrDuplicate,
		`{`: ErrInvalid, ``: ErrInvalid, `{"a":01}`: ErrInvalid, deep: ErrTooLarge,
	} {
		got, err := Canon{Ignore: []string{"x"}}.Append([]byte("X"), []byte(doc))
		if string(got) != "X" || !errors.Is(err, want) {
			t.Errorf("%.40s: got %q, %v", doc, got, err)
		}
	}
}

func TestIgnoredMembersAreOnlyThoseAtTheTop(t *testing.T) {
	c := Canon{Ignore: []string{"user", "z"}}
	for doc, want := range map[string]string{
		`{"user":"u","a":1,"z":[]}`:   `{"a":1}`,
		`{"b":{"user":1},"\u007a":1}`: `{"b":{"user":1}}`,
		`{"user":1}`:                  `{}`,
		`[{"user":1}]`:                `[{"user":1}]`,
		`{"z":{"a":1},"user":"x"}`:    `{}`,
	} {
		if got, err := c.Append(nil, []byte(doc)); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", doc, got, err)
		}
	}
}

func TestWhiteSpaceOfPromptsIsCollapsed(t *testing.T) {
	var seen []string
	c := Canon{Text: func(path []string) bool {
		p := strings.Join(path, "/")
		seen = append(seen, p)
		return p == "messages/#/content"
	}}
	got, err := c.Append(nil, []byte(`{"messages":[{"content":" \n a\u00a0 \u2003b\r\n","role":" user "}],"x":" y "}`))
	if want := `{"messages":[{"content":"a b","role":" user "}],"x":" y "}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	if want := []string{"messages/#/content", "messages/#/role", "x"}; !reflect.DeepEqual(seen, want) {
		t.Errorf("paths %q", seen)
	}
	if got, _ = c.Append(nil, []byte(`{"messages":[{"content":" \n "}]}`)); string(got) != `{"messages":[{"content":""}]}` {
		t.Errorf("got %s", got)
	}
}

// value draws a JSON value. Strings are valid UTF-8, so that encoding/json can be the oracle.
func value(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?`), func(s string) any { return json.Number(s) }),
		rapid.SampledFrom([]any{nil, true, false}))
	if depth == 0 {
		return leaf
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) })
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), func(v map[string]any) any { return v }))
}

func TestReformattedDocumentsHaveTheSameForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, plain, "\t", "  "); err != nil {
			t.Fatal(err)
		}
		form, err := Canon{}.Append(nil, plain)
		if err != nil {
			t.Fatalf("%s: %v", plain, err)
		}
		other, err := Canon{}.Append(nil, spaced.Bytes())
		again, err2 := Canon{}.Append(nil, form)
		if err != nil || err2 != nil || !bytes.Equal(form, other) || !bytes.Equal(form, again) {
			t.Fatalf("%s became %s, indented %s, twice %s; %v, %v", plain, form, other, again, err, err2)
		}
		if got, want := exact(t, form), exact(t, plain); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s means something else: %s", plain, form)
		}
	})
}

// exact reads a document with its numbers as exact fractions.
func exact(t interface{ Fatalf(string, ...any) }, doc []byte) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return exactly(v)
}

func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return "no number: " + v.String()
		}
		return r.RatString()
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exactly(v[k])
		}
	}
	return v
}

// FuzzCanonical: the form of any document is valid, its own form, and not much longer.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.50,"\u00e9"]}`, `{"a":1,"a":2}`, `[-0,1e5,1E-9]`, `"\ud800"`, "{\"\xff\":\"\\udc00\"}", `{"x":{"y":{}},"user":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := Canon{Ignore: []string{"user"}, Text: func(path []string) bool { return len(path) == 1 }}
		form, err := c.Append(nil, doc)
		if err != nil {
			return
		}
		if !json.Valid(form) || len(form) > 4*len(doc) {
			t.Fatalf("%q became %q", doc, form)
		}
		if again, err := c.Append(nil, form); err != nil || !bytes.Equal(again, form) {
			t.Fatalf("%q became %q and then %q, %v", doc, form, again, err)
		}
	})
}

func BenchmarkCanonical(b *testing.B) {
	doc := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word and  another ", 500) + `"}],"temperature":0.0,"stream":true}`)
	var out []byte
	c := Canon{Text: func(path []string) bool { return len(path) == 3 }}
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		out, _ = c.Append(out[:0], doc)
	}
}
