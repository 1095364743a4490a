package loadgen

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Row is one plan and what its burst came to.
type Row struct {
	Name   string `json:"name"`
	Plan   Plan   `json:"-"`
	Report Report `json:"report"`
}

// Comparison holds one row per plan, in the order they ran.
type Comparison struct {
	Rows []Row `json:"rows"`
}

// Compare runs one burst per plan. Each starts from quiet and from zeroed counters.
func (g *Generator) Compare(ctx context.Context, plans []Plan) (Comparison, error) {
	var c Comparison
	for _, p := range plans {
		g.progress("burst of %d with retries: %s", len(g.clients), p)
		r, err := g.Burst(ctx, p)
		if err != nil {
			return c, fmt.Errorf("retries %s: %w", p, err)
		}
		c.Rows = append(c.Rows, Row{Name: p.String(), Plan: p, Report: r})
	}
	return c, nil
}

// WriteText prints the table.
func (c Comparison) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "retries\tsent\tserved\tsheds\tother\tupstream\toffered per wave\tupstream per wave\tmost retries in 50ms\tp95 to last answer")
	for _, row := range c.Rows {
		r := row.Report
		fmt.Fprintf(t, "%s\t%d\t%d of %d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\n", row.Name, r.Sent, r.Admitted, r.Users, r.Sheds, r.Other,
			number(r.Started), r.offered(), r.upstream(), r.RetryPeak, r.LastP95)
	}
	return t.Flush()
}

// Checks says whether the full-jitter row beats the fixed-delay row: fewer sheds, fewer requests, no fewer users served.
// Without both rows there is nothing to say.
func (c Comparison) Checks() []Check {
	none, fixed, jitter := c.row(BackoffNone), c.row(BackoffFixed), c.row(BackoffFullJitter)
	if fixed == nil || jitter == nil {
		return nil
	}
	f, j := fixed.Report, jitter.Report
	var checks []Check
	if none != nil && none.Report.Sheds > 0 {
		base := none.Report.Sheds
		checks = append(checks, Check{f.Sheds > base, fmt.Sprintf("%s multiplies the sheds by %s (%d, without retries %d), %s by %s (%d)",
			fixed.Name, ratio(f.Sheds, base), f.Sheds, base, jitter.Name, ratio(j.Sheds, base), j.Sheds)})
	}
	return append(checks,
		Check{j.Sheds < f.Sheds, fmt.Sprintf("%s saw %d sheds, %s saw %d", jitter.Name, j.Sheds, fixed.Name, f.Sheds)},
		Check{j.Sent < f.Sent, fmt.Sprintf("%s sent %d requests, %s sent %d", jitter.Name, j.Sent, fixed.Name, f.Sent)},
		Check{j.Admitted >= f.Admitted, fmt.Sprintf("%s served %d of %d users, %s served %d", jitter.Name, j.Admitted, j.Users, fixed.Name, f.Admitted)},
	)
}

func (c Comparison) row(b Backoff) *Row {
	for i := range c.Rows {
		if p := c.Rows[i].Plan; p.Backoff == b || b == BackoffNone && p.none() {
			return &c.Rows[i]
		}
	}
	return nil
}

func ratio(a, b int) string { return strconv.FormatFloat(float64(a)/float64(b), 'f', 1, 64) }
