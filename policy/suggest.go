package policy

import (
	"strings"
)

// maxSuggest bounds the length of a word that is compared for a suggestion: comparing is quadratic, and the
// words of a policy are short.
const maxSuggest = 64

// suggest returns a hint that names the word of known nearest to got, or, when none is near, lists known under
// the given title. known may be empty.
func suggest(got, title string, known []string) string {
	best, bestDistance := "", len(got)/3+1
	for _, k := range known {
		if len(got) > maxSuggest || len(k) > maxSuggest {
			continue
		}
		if d := distance(strings.ToLower(got), strings.ToLower(k)); d <= bestDistance && d < len(k) && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	switch {
	case best != "":
		return "did you mean " + quote(best) + "?"
	case len(known) == 0:
		return ""
	case len(known) > maxListed:
		return title + ": " + strings.Join(known[:maxListed], ", ") + ", …"
	}
	return title + ": " + strings.Join(known, ", ")
}

// maxListed bounds how many alternatives a hint lists.
const maxListed = 12

// distance is the number of inserted, deleted, replaced or swapped neighbouring bytes between a and b
// (optimal string alignment).
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
