// Package jsonedit changes one place of a JSON document and leaves every other byte as it is, and writes a document in
// a canonical form, so that two ways to write the same request compare equal. Where it cannot do so for sure it
// refuses: what is not valid, has a key twice or nests too deep passes unchanged.
//
// It also finds the ends of values for those who read documents where they lie. Everything is pure, memory is bounded
// by the document's size, and any goroutine may call it.
package jsonedit

import "errors"

// Why a document is left alone.
var (
	ErrInvalid   = errors.New("not a valid JSON document")
	ErrNotObject = errors.New("not a JSON object")
	ErrDuplicate = errors.New("a key occurs twice")
	ErrPresent   = errors.New("the key is there already")
	ErrMissing   = errors.New("the key is not there")
	ErrNotString = errors.New("the value is not a string")
	ErrTooLarge  = errors.New("the document is too large or nests too deep")
)

// Max is the largest answer into which a member is inserted, in bytes.
const Max = 1 << 20

// MaxDepth bounds how deeply nested a document may be: validation recurses.
const MaxDepth = 128
