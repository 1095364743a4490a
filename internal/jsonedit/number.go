package jsonedit

import (
	"bytes"
	"strconv"
)

// Bounds of numbers that are written without an exponent: zeros behind the digits, and between the point and the
// digits. They also bound by how much a document can grow.
const (
	maxZeros   = 6
	maxLeading = 6
)

// maxExponent bounds exponents, in digits: beyond it no machine reads the number.
const maxExponent = 15

// appendNumber appends a number of a valid document in its one form. It is exact: digits are moved, never rounded.
func appendNumber(dst, n []byte) ([]byte, error) {
	digits, exponent, err := decimal(n)
	if err != nil {
		return dst, err
	}
	if len(digits) == 0 {
		return append(dst, '0'), nil
	}
	if n[0] == '-' {
		dst = append(dst, '-')
	}
	point := len(digits) + exponent // digits before the decimal point
	switch {
	case 0 <= exponent && exponent <= maxZeros:
		dst = append(dst, digits...)
		return append(dst, "000000"[:exponent]...), nil
	case exponent < 0 && point > 0:
		dst = append(append(dst, digits[:point]...), '.')
		return append(dst, digits[point:]...), nil
	case exponent < 0 && point > -maxLeading:
		dst = append(append(dst, "0."...), "000000"[:-point]...)
		return append(dst, digits...), nil
	}
	dst = append(append(dst, digits...), 'e')
	return strconv.AppendInt(dst, int64(exponent), 10), nil
}

// decimal takes a number apart: digits without zeros at either end, none for zero, times ten to the exponent.
func decimal(n []byte) (digits []byte, exponent int, err error) {
	n = bytes.TrimPrefix(n, []byte{'-'})
	if i := bytes.IndexAny(n, "eE"); i >= 0 {
		if exponent, err = readExponent(n[i+1:]); err != nil {
			return nil, 0, err
		}
		n = n[:i]
	}
	whole, fraction, _ := bytes.Cut(n, []byte{'.'})
	exponent -= len(fraction)
	digits = whole
	if len(fraction) > 0 {
		digits = append(bytes.Clone(whole), fraction...)
	}
	digits = bytes.TrimLeft(digits, "0")
	short := bytes.TrimRight(digits, "0")
	return short, exponent + len(digits) - len(short), nil
}

// readExponent reads a whole number with a sign or none.
func readExponent(e []byte) (int, error) {
	negative := e[0] == '-'
	e = bytes.TrimLeft(e, "+-")
	e = bytes.TrimLeft(e, "0")
	if len(e) > maxExponent {
		return 0, ErrTooLarge
	}
	n := 0
	for _, c := range e {
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}
