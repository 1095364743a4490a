package archtest

// kind says which rules a package is under.
type kind uint8

const (
	layered  kind = iota // has a level and imports lower levels only
	outsider             // judges from outside: imports no layered package
	testOnly             // imported by test files only; free to import anything
)

// room is a package's place.
type room struct {
	kind  kind
	level int
	// pure rooms have no clock, goroutine, log, proto or prometheus: time is an argument, effects are return values.
	pure bool
	// locks allows package sync in a pure room.
	locks bool
	// edge rooms may create contexts: they own the life cycle.
	edge bool
}

// rooms places every package of the module by its path below the module's. A package imports lower levels only.
var rooms = map[string]room{
	// Words, time arithmetic and the policy file.
	"internal/outcome":  {level: 0, pure: true},
	"internal/frame":    {level: 0, pure: true},
	"internal/deadline": {level: 0, pure: true},
	"policy":            {level: 0, pure: true},
	"internal/degrade":  {level: 0, pure: true},
	"internal/jsonedit": {level: 0, pure: true},

	// What is on the wire, the protocol of one request, the queue of one tier, and Envoy's configuration, whose
	// matter is protos.
	"internal/dialect": {level: 1, pure: true},
	"internal/limit":   {level: 1, pure: true, locks: true},
	"internal/replay":  {level: 1, pure: true, locks: true},
	"envoy":            {level: 1},

	"internal/answer":  {level: 2, pure: true},
	"internal/engine":  {level: 3},
	"internal/session": {level: 3, pure: true},

	// Shells: they meet the network, the clock and the file system. policy/watch is one of them, although it lies
	// below policy in the tree: it reads files, debounces by the clock and owns a goroutine.
	"extproc":          {level: 4},
	"policy/watch":     {level: 4},
	"internal/metrics": {level: 4},
	"internal/admin":   {level: 4},
	"internal/seal":    {level: 4},

	"internal/replay/redis": {level: 4},

	"internal/app": {level: 5, edge: true},
	"cmd/brownout": {level: 6, edge: true},

	"internal/stub":    {kind: outsider},
	"internal/loadgen": {kind: outsider},

	"internal/testkit":          {kind: testOnly},
	"internal/replay/storetest": {kind: testOnly},
	"internal/archtest":         {kind: testOnly},
	"e2e":                       {kind: testOnly},
}
