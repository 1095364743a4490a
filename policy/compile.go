package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Compile checks what the fields of the file say together and builds the snapshot. The snapshot is nil if Load
// found errors in the file or Compile finds some; its problems are in file order and do not repeat those of Load.
// A value that Load refused causes no second problem here.
func (f *File) Compile() (*Snapshot, []Problem) {
	c := &compiler{report: report{file: f.name}, file: f, index: make(map[string]int, len(f.tiers))}
	defaults := Defaults()
	s := &Snapshot{
		Hash:     f.hash,
		Budget:   c.budget(f.budget, defaults.Budget, "the built-in"),
		Priority: c.priority(defaults.Priority),
	}
	c.headers(s)
	for i, t := range f.tiers {
		c.index[t.name] = i
		s.Tiers = append(s.Tiers, c.tier(t))
	}
	matches := make([]Match, len(f.routes))
	for i, r := range f.routes {
		s.Routes = append(s.Routes, c.route(r, s))
		matches[i] = s.Routes[i].Match
	}
	s.Store = c.store()
	c.names()
	c.unused()
	c.unreachable(matches)
	if !f.ok || c.errors > 0 {
		s = nil
	}
	return s, c.done()
}

// compiler holds what one Compile needs.
type compiler struct {
	report
	file  *File
	index map[string]int // tier name → index
}

// budget lays raw over base; whose says where base comes from.
func (c *compiler) budget(raw rawBudget, base Budget, whose string) Budget {
	b := Budget{
		Header:        raw.header.or(base.Header),
		Default:       raw.def.or(base.Default),
		Max:           raw.max.or(base.Max),
		DefaultCovers: raw.covers.or(base.DefaultCovers),
	}
	if raw.def.bad() || raw.max.bad() || b.Default <= b.Max {
		return b
	}
	switch {
	case raw.def.set && raw.max.set:
		c.errorAt(raw.def.at, fmt.Sprintf("default %s is above max %s", short(b.Default), short(b.Max)), "lower default or raise max")
	case raw.def.set:
		c.errorAt(raw.def.at, fmt.Sprintf("default %s is above %s max of %s", short(b.Default), whose, short(b.Max)), "set max too")
	case raw.max.set:
		c.errorAt(raw.max.at, fmt.Sprintf("max %s is below %s default of %s", short(b.Max), whose, short(b.Default)), "set default too")
	}
	return b
}

func (c *compiler) priority(base Priority) Priority {
	raw := c.file.priority
	return Priority{
		Header:  raw.header.or(base.Header),
		Values:  maps.Clone(raw.values.or(base.Values)),
		Default: raw.def.or(base.Default),
		Trust:   raw.trust.or(base.Trust),
	}
}

// headers refuses one header with two meanings.
func (c *compiler) headers(s *Snapshot) {
	budget, priority := c.file.budget.header, c.file.priority.header
	if budget.bad() || priority.bad() || s.Budget.Header != s.Priority.Header {
		return
	}
	at := priority.at
	if !priority.set {
		at = budget.at
	}
	c.errorAt(at, "header "+quote(s.Budget.Header)+" is both budget.header and priority.header", "choose two names")
}

// tier compiles a tier; of a kind that Load refused there is nothing in it.
func (c *compiler) tier(t rawTier) Tier {
	out := Tier{Name: t.name}
	switch {
	case t.model.set:
		out.Model = c.model(t.model.v)
	case t.cache.set:
		out.Cache = &Cached{StaleFor: t.cache.v.staleFor.or(0)}
	case t.template.set:
		out.Template = &Template{Text: t.template.v.text.or("")}
	}
	return out
}

func (c *compiler) model(m rawModel) *Model {
	rewrite := m.rewrite.v
	return &Model{
		Concurrency: c.concurrency(m.concurrency),
		Queue:       m.queue.or(0),
		Order:       m.order.or(OrderEDF),
		Rewrite:     Rewrite{Model: rewrite.model.or(""), Path: rewrite.path.or(""), Headers: slices.Clone(rewrite.headers.or(nil))},
	}
}

// concurrency is this process's share of the tier's limit.
func (c *compiler) concurrency(raw rawConcurrency) int {
	total, replicas := raw.total.or(1), raw.replicas.or(1)
	if !raw.total.ok || !raw.replicas.ok {
		return total
	}
	share := max(total/replicas, 1)
	if all := share * replicas; all != total {
		c.warnAt(raw.at, fmt.Sprintf("%d does not divide by %d replicas: each gets %d, together %d", total, replicas, share, all),
			"make total a multiple of replicas")
	}
	return share
}

func (c *compiler) route(r rawRoute, s *Snapshot) Route {
	budget := c.budget(r.budget, s.Budget, "the file's")
	ladder := c.ladder(r, budget)
	out := Route{
		Name:        r.name.v,
		Match:       Match{Methods: slices.Clone(r.match.methods), Path: PathMatch{Prefix: r.match.path.prefix.or(""), Exact: r.match.path.exact.or("")}},
		Budget:      budget,
		Ladder:      ladder,
		Failure:     r.failure.or(FailOpen),
		ShedStatus:  maps.Clone(r.shed.status),
		Stream:      c.stream(r.stream, budget),
		Dwell:       r.dwell.or(c.file.dwell.or(defaultDwell)),
		Retries:     r.retry.retries.or(0),
		RetryBudget: r.retry.budget.or(DefaultRetryBudget),
	}
	out.ReplaceEmpty = c.replacesEmpty(r, ladder)
	c.replay(r, &out, s)
	return out
}

func (c *compiler) tierNames() []string {
	names := make([]string, len(c.file.tiers))
	for i, t := range c.file.tiers {
		names[i] = t.name
	}
	return names
}

// names refuses two routes of one name.
func (c *compiler) names() {
	lines := make(map[string]int, len(c.file.routes))
	for _, r := range c.file.routes {
		if !r.name.ok {
			continue
		}
		if line, dup := lines[r.name.v]; dup {
			c.errorAt(r.name.at, "route "+quote(r.name.v)+" is given twice", fmt.Sprintf("first on line %d; choose another name", line))
			continue
		}
		lines[r.name.v] = r.name.at.line
	}
}

// unused warns of tiers no ladder names. A ladder that could not be read may have named any of them, so then it
// says nothing.
func (c *compiler) unused() {
	used := make(map[string]bool, len(c.file.tiers))
	for _, r := range c.file.routes {
		if r.ladder.bad || !r.ladder.set {
			return
		}
		for _, rung := range r.ladder.rungs {
			if _, ok := c.index[rung.tier]; !ok {
				return
			}
			used[rung.tier] = true
		}
	}
	if len(c.file.routes) == 0 {
		return
	}
	for _, t := range c.file.tiers {
		if t.named && !used[t.name] {
			c.warnAt(t.at, "tier "+quote(t.name)+" is in no ladder", "add it to one or remove it")
		}
	}
}

// unreachable warns of routes that earlier ones leave nothing to.
func (c *compiler) unreachable(matches []Match) {
	if slices.ContainsFunc(c.file.routes, func(r rawRoute) bool { return r.match.bad }) {
		return
	}
	for i, r := range c.file.routes {
		by := shadowing(matches, i)
		if by == nil || !r.name.ok {
			continue
		}
		slices.Sort(by)
		var names []string
		for _, j := range slices.Compact(by) {
			names = append(names, quote(c.file.routes[j].name.v))
		}
		c.warnAt(r.at, "route "+quote(r.name.v)+" can never match: all its requests go to "+strings.Join(names, " and ")+" before it",
			"move it up or remove it")
	}
}
