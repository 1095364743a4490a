package jsonedit

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestAMemberIsInsertedAndEveryOtherByteStays(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for _, c := range []struct {
		name, doc, want string
		err             error
	}{
		{"behind the last member", `{"a": 1.0, "b":[{}] }`, `{"a": 1.0, "b":[{}] ,"meta":7}`, nil},
		{"into an empty object", " { } \n", ` { "meta":7} ` + "\n", nil},
		{"behind braces in a string", `{"a":"}"}`, `{"a":"}","meta":7}`, nil},
		{"beside a member of an inner object", `{"a":{"meta":1}}`, `{"a":{"meta":1},"meta":7}`, nil},
		{"beside numbers no float holds", `{"n":123456789012345678901234567890,"e":1E400}`, `{"n":123456789012345678901234567890,"e":1E400,"meta":7}`, nil},
		{"not where it is", `{"meta":null}`, "", ErrPresent},
		{"not where it is in escapes", `{"\u006deta":1}`, "", ErrPresent},
		{"not beside a key twice", `{"a":1,"b":2,"\u0061":3}`, "", ErrDuplicate},
		{"not into an array", `[1]`, "", ErrNotObject},
		{"not into a number", `1`, "", ErrNotObject},
		{"not into half a document", `{"a":1`, "", ErrInvalid},
		{"not into nothing", ``, "", ErrInvalid},
		{"not into what no standard knows", `{"a":NaN}`, "", ErrInvalid},
		{"not into two documents", `{"a":1}{"b":1}`, "", ErrInvalid},
		{"not into what nests too deep", `{"a":` + deep + `}`, "", ErrTooLarge},
		{"not into what is too large", `{"a":"` + strings.Repeat("x", Max) + `"}`, "", ErrTooLarge},
	} {
		got, err := InsertMember([]byte("X"), []byte(c.doc), "meta", []byte("7"))
		if string(got) != "X"+c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: got %.80q, %v", c.name, got, err)
		}
	}
}

func TestAStringIsReplacedAndEveryOtherByteStays(t *testing.T) {
	for _, c := range []struct {
		name, doc, want string
		err             error
	}{
		{"in place", `{ "model" : "big" ,"x":1.50}`, `{ "model" : "a\"b" ,"x":1.50}`, nil},
		{"under an escaped key", `{"m\u006fdel":"big"}`, `{"m\u006fdel":"a\"b"}`, nil},
		{"beside another key twice", `{"a":1,"a":2,"model":""}`, `{"a":1,"a":2,"model":"a\"b"}`, nil},
		{"not an inner one", `{"a":{"model":"big"}}`, "", ErrMissing},
		{"not one of two", `{"model":"big","model":"big"}`, "", ErrDuplicate},
		{"not what is no string", `{"model":null}`, "", ErrNotString},
		{"not in an array", `["model"]`, "", ErrNotObject},
		{"not in half a document", `{"model":"big"`, "", ErrInvalid},
	} {
		got, err := ReplaceString([]byte("X"), []byte(c.doc), "model", `a"b`)
		if string(got) != "X"+c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
	}
}

func TestARequestOfAnySizeIsEdited(t *testing.T) {
	big := `"` + strings.Repeat("x", 3*Max) + `"`
	got, err := AddMembers(nil, []byte(`{"prompt":`+big+`}`), Member{"model", []byte(`"m"`)})
	if want := `{"prompt":` + big + `,"model":"m"}`; err != nil || string(got) != want {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err = ReplaceString(nil, got, "model", "n"); err != nil || !strings.HasSuffix(string(got), `,"model":"n"}`) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// FuzzInsertMember: an edited document is the old one with nothing but the member in it, and every reader finds it.
func FuzzInsertMember(f *testing.F) {
	for _, s := range []string{`{"a":1}`, ` { } `, `{"a":{"b":[1,2]},"c":"\u0063\ud83d\ude00"}`, `{"":""}`, `{"a":1,"a":2}`, `[]`, "{\"\xff\":1}", `{"a":"}"}x`} {
		f.Add([]byte(s), "meta", "value")
	}
	f.Fuzz(func(t *testing.T, doc []byte, key, value string) {
		quoted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out, err := InsertMember(nil, doc, key, quoted)
		if err != nil {
			if out != nil {
				t.Fatalf("%v, and %q", err, out)
			}
			return
		}
		if !json.Valid(out) || len(out) <= len(doc) {
			t.Fatalf("%q is no JSON, or shorter than %q", out, doc)
		}
		end := strings.LastIndexByte(string(doc), '}')
		if string(out[:end]) != string(doc[:end]) || !strings.HasSuffix(string(out), string(doc[end:])) {
			t.Fatalf("other bytes of %q changed: %q", doc, out)
		}
		var was, is map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(doc, &was), json.Unmarshal(out, &is)); err != nil || len(is) != len(was)+1 && utf8Keys(doc) {
			t.Fatalf("%d members became %d in %q: %v", len(was), len(is), out, err)
		}
		found := false
		gjson.ParseBytes(out).ForEach(func(k, v gjson.Result) bool {
			found = found || v.Raw == string(quoted)
			return true
		})
		if !found {
			t.Fatalf("gjson finds no value %s in %q", quoted, out)
		}
	})
}

// utf8Keys says whether no two keys may be read as the same although they are not: half surrogates and bytes that are
// no UTF-8 all become U+FFFD in most readers.
func utf8Keys(doc []byte) bool {
	return !strings.ContainsRune(string(doc), '\uFFFD') && !strings.Contains(strings.ToLower(string(doc)), `\ud`) && strings.ToValidUTF8(string(doc), "") == string(doc)
}

func TestOpenTellsHalfADocument(t *testing.T) {
	for doc, want := range map[string]bool{
		``: false, `{`: true, `[1,{"a":2}`: true, `{"a":"}`: true, `{"a":"\"`: true, `{"a":"\\"}`: false, `{"a":"\`: true,
		`{"a":1}`: false, `{"a":1};`: false, `{"a":NaN}`: false, `]`: false, `"x`: true, `12`: false, `{"a":"["}`: false,
	} {
		if got := Open([]byte(doc)); got != want {
			t.Errorf("%s: got %t", doc, got)
		}
	}
}
