package archtest

import "slices"

// rules are all rules, by the name a test run shows.
var rules = map[string]func(*tree, map[string]room) []finding{
	"every package has a place":         checkRooms,
	"imports point one way":             checkImports,
	"imports from elsewhere":            checkForeign,
	"one package comment per package":   checkPackageComments,
	"functions and files stay short":    checkLengths,
	"banned calls":                      checkCalls,
	"package-level variables are fixed": checkVars,
}

// sorted orders findings by place.
func sorted(list []finding) []finding {
	slices.SortFunc(list, func(a, b finding) int { return slices.Compare([]string{a.at, a.rule}, []string{b.at, b.rule}) })
	return list
}
