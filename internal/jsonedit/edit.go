package jsonedit

import (
	"bytes"
	"slices"
)

// Member is one member of an object: a key and its value, which is valid JSON.
type Member struct {
	Key   string
	Value []byte
}

// InsertMember appends doc to dst with one more member, behind the others. value is valid JSON. The errors are those
// of InsertMembers.
func InsertMember(dst, doc []byte, key string, value []byte) ([]byte, error) {
	return InsertMembers(dst, doc, Member{key, value})
}

// InsertMembers appends doc, an object, to dst with further members before its closing brace; all other bytes stay.
// Keys are compared as they mean, whatever escapes they are written with. On an error dst is returned as it was:
// ErrPresent if a key is there, ErrDuplicate if the document has any key twice at its top, ErrTooLarge above Max,
// ErrNotObject, ErrInvalid.
func InsertMembers(dst, doc []byte, members ...Member) ([]byte, error) {
	if len(doc) > Max {
		return dst, ErrTooLarge
	}
	return AddMembers(dst, doc, members...)
}

// AddMembers is InsertMembers for documents of any size: requests, which are bounded elsewhere.
func AddMembers(dst, doc []byte, members ...Member) ([]byte, error) {
	obj, err := top(doc)
	if err != nil {
		return dst, err
	}
	for _, m := range members {
		if obj.find(m.Key) != nil {
			return dst, ErrPresent
		}
	}
	end := bytes.LastIndexByte(doc, '}')
	dst = append(dst, doc[:end]...)
	for i, m := range members {
		if i > 0 || len(obj) > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendQuoted(dst, m.Key), ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, doc[end:]...), nil
}

// ReplaceString appends doc, an object, to dst with another value for a string member at its top; all other bytes
// stay. On an error dst is returned as it was: ErrDuplicate if the key is there twice, ErrMissing, ErrNotString,
// ErrNotObject, ErrInvalid.
func ReplaceString(dst, doc []byte, key, value string) ([]byte, error) {
	obj, err := top(doc)
	if err != nil && err != ErrDuplicate {
		return dst, err
	}
	m := obj.find(key)
	switch {
	case m == nil:
		return dst, ErrMissing
	case m.twice:
		return dst, ErrDuplicate
	case doc[m.from] != '"':
		return dst, ErrNotString
	}
	dst = AppendQuoted(append(dst, doc[:m.from]...), value)
	return append(dst, doc[m.to:]...), nil
}

// span is where a member's value lies in its document.
type span struct {
	key      []byte // canonical, with quotes
	from, to int
	twice    bool
}

type object []span

// find is the member with a key, or nil.
func (o object) find(key string) *span {
	quoted := AppendQuoted(nil, key)
	i, found := slices.BinarySearchFunc(o, quoted, func(s span, k []byte) int { return bytes.Compare(s.key, k) })
	if !found {
		return nil
	}
	return &o[i]
}

// top finds the members of a document that is an object, sorted by key. With ErrDuplicate they are all there, those
// that occur twice marked.
func top(doc []byte) (object, error) {
	if err := check(doc); err != nil {
		return nil, err
	}
	rest := SkipSpace(doc)
	if rest[0] != '{' {
		return nil, ErrNotObject
	}
	var obj object
	var keys []byte
	for rest = SkipSpace(rest[1:]); rest[0] == '"'; rest = SkipSpace(rest) {
		end := StringEnd(rest)
		begin := len(keys)
		keys = appendCanonical(keys, rest[:end], false)
		key := keys[begin:len(keys):len(keys)]
		rest = SkipSpace(rest[end:])
		from := len(doc) - len(rest)
		end = ValueEnd(rest)
		obj = append(obj, span{key: key, from: from, to: from + end})
		rest = rest[end:]
	}
	slices.SortStableFunc(obj, func(a, b span) int { return bytes.Compare(a.key, b.key) })
	var err error
	for i := 1; i < len(obj); i++ {
		if bytes.Equal(obj[i-1].key, obj[i].key) {
			obj[i-1].twice, obj[i].twice, err = true, true, ErrDuplicate
		}
	}
	return obj, err
}
