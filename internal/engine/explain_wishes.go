package engine

import (
	"math"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// BudgetWhy is how long the caller waits. All instants count from the arrival.
type BudgetWhy struct {
	Value   Millis        `json:"value_ms"`
	From    string        `json:"from"`   // the header that decides, or default, or max
	Covers  string        `json:"covers"` // whole or first_content, of a stream
	Reserve Millis        `json:"reserve_ms"`
	KillAt  Millis        `json:"kill_at_ms"`
	EndAt   Millis        `json:"stream_ends_at_ms,omitempty"` // of a stream whose headers are there; 0: no bound
	Expired bool          `json:"expired"`
	Stated  []StatedBound `json:"stated"` // everything that bounds it
}

// Where a budget comes from, when it is not a header.
const (
	fromDefault = "default"
	fromMax     = "max"
)

// StatedBound is a header line that bounds the time.
type StatedBound struct {
	Header string `json:"header"`
	Value  Millis `json:"value_ms"` // of an Envoy's timeout: less our margin
	Covers string `json:"covers"`
}

// IgnoredHeader is a header line whose value is of no use.
type IgnoredHeader struct {
	Header string `json:"header"`
	Value  string `json:"value,omitempty"` // not of a credential
	Why    string `json:"why"`
}

func explainBudget(now time.Time, a *Admission) *BudgetWhy {
	d := a.due
	out := &BudgetWhy{Value: Millis(d.Budget), From: fromDefault, Covers: covers(d), Reserve: Millis(d.Reserve),
		KillAt: Millis(d.KillAt().Sub(now)), Expired: d.Expired(), Stated: []StatedBound{}}
	if end := d.EndAt(true); !end.IsZero() {
		out.EndAt = Millis(end.Sub(now))
	}
	for _, h := range a.req.Headers {
		b, ok := boundOf(now, a, h)
		if !ok {
			continue
		}
		out.Stated = append(out.Stated, b)
		if b.Value == out.Value && out.From == fromDefault {
			out.From = b.Header
		}
	}
	if out.From == fromDefault && d.Budget == a.route.Budget.Max && d.Budget != a.route.Budget.Default {
		out.From = fromMax
	}
	return out
}

func covers(d deadline.Deadline) string {
	if d.CoversWhole() {
		return "whole"
	}
	return "first_content"
}

// unbounded are limits that show what headers alone say: no default is so long, and no header can state it.
const unbounded = time.Duration(math.MaxInt64)

// boundOf is what one header line says about the time.
func boundOf(now time.Time, a *Admission, h outcome.Header) (StatedBound, bool) {
	alone := Request{Headers: []outcome.Header{h}}
	for _, other := range a.req.Headers {
		if other.Name == headerCovers {
			alone.Headers = append(alone.Headers, other)
		}
	}
	w := readWishes(&alone, a.route.Route, a.c.policy)
	d := w.bounds.Resolve(now, deadline.Limits{Default: unbounded, Max: unbounded - 1})
	return StatedBound{h.Name, Millis(d.Budget), covers(d)}, d.Budget != unbounded
}

// explainIgnored are the header lines that were ignored.
func explainIgnored(a *Admission) []IgnoredHeader {
	var out []IgnoredHeader
	for i, name := range a.wishes.ignored {
		u := a.wishes.useless[i]
		if isCredential(a, outcome.Header{Name: name, Value: u.value}) {
			u.value = ""
		}
		out = append(out, IgnoredHeader{name, u.value, u.why})
	}
	return out
}

// isCredential says whether a header line tells tenants apart.
func isCredential(a *Admission, h outcome.Header) bool {
	_, anonymous := a.e.keys.Tenant(replay.Subject{Headers: []outcome.Header{h}}, nil)
	return !anonymous
}

// withoutValues is a path whose query has names only. A name that may itself be a value is left out.
func withoutValues(path string) string {
	head, query, fragment := path, "", false
	if i := strings.IndexByte(head, '#'); i >= 0 {
		head, fragment = head[:i], true
	}
	head, query, ok := strings.Cut(head, "?")
	var b strings.Builder
	b.WriteString(head)
	if ok {
		b.WriteByte('?')
		for i, pair := range strings.Split(query, "&") {
			if i > 0 {
				b.WriteByte('&')
			}
			b.WriteString(paramName(pair))
		}
	}
	if fragment {
		b.WriteString("#…")
	}
	return b.String()
}

// maxParamName is the longest name of a parameter that is shown.
const maxParamName = 32

// paramName is the name of a pair of a query with its value hidden. A pair without one may be a bare token.
func paramName(pair string) string {
	name, value, ok := strings.Cut(pair, "=")
	plain := strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.$%") == ""
	if !ok || strings.Trim(value, "=") == "" || len(name) > maxParamName || !plain {
		return "…"
	}
	return name + "=…"
}
