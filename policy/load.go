package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxBytes is the largest policy file Load reads. The largest useful policy is far smaller; the bound protects a
// running process from a file that was never meant to be a policy.
const MaxBytes = 1 << 20

// Parse loads and compiles src. The snapshot is nil exactly if a problem is an error; warnings alone still give
// one. Problems are in file order.
func Parse(name string, src []byte) (*Snapshot, []Problem) {
	f, problems := Load(name, src)
	snapshot, more := f.Compile()
	problems = append(problems, more...)
	sortProblems(problems)
	return snapshot, problems
}

// Load reads src, a policy file in YAML, and checks each value by itself; name is how problems call it. All
// problems come at once, in file order. The File is never nil: where problems were found it holds what could be
// read, so that Compile can report the rest, but it compiles to nothing.
func Load(name string, src []byte) (*File, []Problem) {
	sum := sha256.Sum256(src)
	f := &File{name: name, hash: hex.EncodeToString(sum[:8])}
	d := &decoder{report{file: name}}
	if root := d.document(src); root != nil {
		fileFields().read(d, root, f)
	}
	f.ok = d.errors == 0
	return f, d.done()
}

// document returns the content of the one YAML document in src, or nil with the reason recorded.
func (d *decoder) document(src []byte) *yaml.Node {
	if len(src) > MaxBytes {
		d.errorAt(position{1, 1}, fmt.Sprintf("the file has %d bytes", len(src)), fmt.Sprintf("at most %d", MaxBytes))
		return nil
	}
	if at, what := badText(src); what != "" {
		d.errorAt(at, what, "a policy is UTF-8 text")
		return nil
	}
	loader, err := yaml.NewLoader(strings.NewReader(string(src)))
	if err != nil {
		d.syntax(err)
		return nil
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		d.errorAt(position{1, 1}, "the file is empty", "a policy begins with version: 1")
		return nil
	} else if err != nil {
		d.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		d.errorNode(&second, "a second document begins here", "one file holds one policy: remove it and the --- before it")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	if len(doc.Content) != 1 || resolve(doc.Content[0]).ShortTag() == "!!null" {
		d.errorAt(position{1, 1}, "the file is empty", "a policy begins with version: 1")
		return nil
	}
	return doc.Content[0]
}

// syntax reports text that is not YAML.
func (d *decoder) syntax(err error) {
	at, message, hint := position{1, 1}, oneLine(err.Error()), ""
	if le, ok := errors.AsType[*yaml.LoadError](err); ok {
		at, message = position{le.Mark.Line, le.Mark.Column}, oneLine(le.Message)
		if le.ContextMsg != "" && le.ContextMark.Line > 0 {
			hint = fmt.Sprintf("%s that begins at %d:%d", oneLine(le.ContextMsg), le.ContextMark.Line, le.ContextMark.Column)
		}
	}
	d.errorAt(at, "not YAML: "+message, hint)
}

// badText finds the first byte of src that no policy may contain and says what it is.
func badText(src []byte) (at position, what string) {
	line, col := 1, 1
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return position{line, col}, fmt.Sprintf("byte 0x%02x is not UTF-8", src[i])
		case r == 0x7f, r < ' ' && r != '\t' && r != '\n' && r != '\r':
			return position{line, col}, fmt.Sprintf("control character 0x%02x", r)
		case r == '\n':
			line, col = line+1, 1
		default:
			col++
		}
		i += size
	}
	return position{}, ""
}
