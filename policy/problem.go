package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Severity says whether a problem makes a file unusable.
type Severity uint8

// The severities; the zero value is none of them.
const (
	SeverityError   Severity = iota + 1 // the file cannot be used
	SeverityWarning                     // the file can be used, but something in it has no effect or rounds
	numSeverities
)

var severityNames = [numSeverities]string{SeverityError: "error", SeverityWarning: "warning"}

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == 0 {
		return "unknown"
	}
	return word(severityNames[:], int(s))
}

// MarshalText makes a severity a word in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Problem is one thing wrong with a policy file.
type Problem struct {
	File string `json:"file"` // as given to Load
	// Line and Col point at the offending value, or at the mapping that lacks a field. Both count from 1;
	// columns count characters. Problems of Load and Compile always have both; 0 means the file as a whole.
	Line     int      `json:"line,omitempty"`
	Col      int      `json:"col,omitempty"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // the remedy; may be empty
}

// String renders the problem on one line: file:line:col: error|warning: message (hint).
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	fmt.Fprintf(&b, ": %s: %s", p.Severity, p.Message)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	return b.String()
}

// HasErrors reports whether any problem is an error, that is, whether the file is unusable.
func HasErrors(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == SeverityError })
}

// sortProblems puts problems in the order of the file.
func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Message, b.Message))
	})
}

// maxProblems bounds the report of one pass over one file: a file with more is not the one its author meant.
const maxProblems = 100

// position is a place in the file, counted from 1.
type position struct{ line, col int }

// report collects the problems of one pass.
type report struct {
	file     string
	problems []Problem
	errors   int     // all errors seen, also those beyond the bound
	dropped  Problem // the first problem beyond the bound; as severe as the worst one there
}

// errorAt records an error; hint may be empty.
func (r *report) errorAt(at position, message, hint string) {
	r.errors++
	r.add(Problem{Line: at.line, Col: at.col, Severity: SeverityError, Message: message, Hint: hint})
}

// warnAt records a warning; hint may be empty.
func (r *report) warnAt(at position, message, hint string) {
	r.add(Problem{Line: at.line, Col: at.col, Severity: SeverityWarning, Message: message, Hint: hint})
}

func (r *report) add(p Problem) {
	p.File = r.file
	p.Line, p.Col = max(p.Line, 1), max(p.Col, 1)
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, p)
		return
	}
	if r.dropped.Severity == 0 {
		p.Message, p.Hint = "too many problems; the rest is not shown", "correct the others first"
		r.dropped = p
	}
	if p.Severity == SeverityError {
		r.dropped.Severity = SeverityError
	}
}

// done returns the problems in file order, and last the note that some are not shown.
func (r *report) done() []Problem {
	sortProblems(r.problems)
	r.problems = slices.Compact(r.problems) // a value behind an alias is read once per use
	if r.dropped.Severity != 0 {
		return append(r.problems, r.dropped)
	}
	return r.problems
}

// maxQuoted bounds how much of a value a message repeats, in characters.
const maxQuoted = 64

// quote renders a value of the file for a message: quoted, on one line, and cut when long.
func quote(s string) string {
	if utf8.RuneCountInString(s) <= maxQuoted {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", string([]rune(s)[:maxQuoted]))
}

// oneLine makes a foreign message safe to print on one line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
