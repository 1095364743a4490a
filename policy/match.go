package policy

import "strings"

// Match returns the first route that matches method and path, or false. The path may carry a query or a
// fragment: it is compared without them. Comparison is of exact bytes; nothing is decoded, normalized or
// folded, because Envoy routes on the same bytes. Match does not allocate.
func (s *Snapshot) Match(method, path string) (*Route, bool) {
	path = cutQuery(path)
	for i := range s.Routes {
		if s.Routes[i].Match.matches(method, path) {
			return &s.Routes[i], true
		}
	}
	return nil, false
}

// cutQuery returns path up to its first '?' or '#'.
func cutQuery(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// matches reports whether m selects method and path, which has no query.
func (m *Match) matches(method, path string) bool {
	return m.hasMethod(method) && m.Path.matches(path)
}

func (m *Match) hasMethod(method string) bool {
	if len(m.Methods) == 0 {
		return true
	}
	for _, have := range m.Methods {
		if have == method {
			return true
		}
	}
	return false
}

func (p PathMatch) matches(path string) bool {
	if p.Exact != "" {
		return path == p.Exact
	}
	return strings.HasPrefix(path, p.Prefix) // an empty prefix matches everything
}

// covers reports whether every path that q matches is matched by p.
func (p PathMatch) covers(q PathMatch) bool {
	switch {
	case p.Exact != "":
		return q.Exact == p.Exact
	case q.Exact != "":
		return strings.HasPrefix(q.Exact, p.Prefix)
	default:
		return strings.HasPrefix(q.Prefix, p.Prefix)
	}
}

// shadowing returns the indexes of the earlier routes that together take every request routes[i] selects, or
// nil when at least one request reaches it. Methods are looked at one by one, so two earlier routes may share
// the work; paths are not put together from parts.
func shadowing(routes []Match, i int) []int {
	methods := routes[i].Methods
	if len(methods) == 0 {
		methods = []string{anyOtherMethod}
	}
	var by []int
	for _, method := range methods {
		j := firstCover(routes[:i], method, routes[i].Path)
		if j < 0 {
			return nil
		}
		by = append(by, j)
	}
	return by
}

// anyOtherMethod stands for the methods no route lists; it is no HTTP token, so only a route without a method
// list matches it.
const anyOtherMethod = " "

func firstCover(routes []Match, method string, path PathMatch) int {
	for j := range routes {
		if routes[j].hasMethod(method) && routes[j].Path.covers(path) {
			return j
		}
	}
	return -1
}
