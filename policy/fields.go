package policy

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of single values.
const (
	minBudget      = time.Millisecond // budgets travel in whole milliseconds
	maxBudget      = 24 * time.Hour
	maxConcurrency = 1_000_000
	maxReplicas    = 10_000
	maxQueue       = 1_000_000
	maxPriority    = 1000 // and -maxPriority at the other end
	version        = 1
)

// The tables below are the policy language: one function per mapping, one entry per field.

func fileFields() object[File] {
	return object[File]{
		typ: "a policy: a mapping that begins with version: 1",
		fields: []field[File]{
			value(versionLeaf(), func(f *File) *optional[int] { return &f.version }, doc{
				key: "version", required: true,
				meaning: "The version of the policy language. This version of brownout reads version 1."}),
			nested(budgetFields(), func(f *File) *rawBudget { return &f.budget }, doc{
				key: "budget", meaning: "How long callers wait for an answer."}),
			nested(priorityFields(), func(f *File) *rawPriority { return &f.priority }, doc{
				key: "priority", meaning: "Who goes first when requests have to wait."}),
			tiersField(),
			routesField(),
			value(timerLeaf(maxDwell), func(f *File) *optional[time.Duration] { return &f.dwell }, doc{
				key: "ladder_dwell", def: short(defaultDwell),
				meaning: "How long a lower tier with a `wait_over` that was entered because a better one was busy is kept to, for routes that do not say. A free slot in a better tier always wins. `0s`: not at all."}),
			mapped(storeFields(), func(f *File) *part[rawStore] { return &f.store }, doc{
				key: "store", def: "the memory of this process", meaning: "Where answers that may be given again are kept. Routes use it with `cache` or `idempotency`."}),
		},
	}
}

func budgetFields() object[rawBudget] {
	defaults := Defaults().Budget
	header := value(headerLeaf(), func(b *rawBudget) *optional[string] { return &b.header }, doc{
		key: "header", def: defaults.Header,
		meaning: "The request header in which a caller states its budget, in milliseconds."})
	o := routeBudgetFields()
	o.fields = append([]field[rawBudget]{header}, o.fields...)
	for i := range o.fields {
		switch f := &o.fields[i]; f.key {
		case "default":
			f.def = short(defaults.Default)
		case "max":
			f.def = short(defaults.Max)
		case "default_covers":
			f.def = defaults.DefaultCovers.String()
		}
	}
	return o
}

func routeBudgetFields() object[rawBudget] {
	const inherited = "the file's"
	return object[rawBudget]{
		typ: "a budget",
		fields: []field[rawBudget]{
			value(durationLeaf(minBudget, maxBudget), func(b *rawBudget) *optional[time.Duration] { return &b.def }, doc{
				key: "default", def: inherited,
				meaning: "The budget of a request that states none. It must not be above `max`."}),
			value(durationLeaf(minBudget, maxBudget), func(b *rawBudget) *optional[time.Duration] { return &b.max }, doc{
				key: "max", def: inherited,
				meaning: "The cap on what a caller may state; more is cut to it."}),
			value(wordLeaf[Covers](coversNames[:]), func(b *rawBudget) *optional[Covers] { return &b.covers }, doc{
				key: "default_covers", def: inherited,
				meaning: "What the default budget bounds: of a streamed answer only the time to its first content (`first_content`), or the whole answer (`whole`). " +
					"An answer that is not streamed, and a budget that was stated, are always bounded as a whole."}),
		},
	}
}

func priorityFields() object[rawPriority] {
	defaults := Defaults().Priority
	return object[rawPriority]{
		typ: "priorities",
		fields: []field[rawPriority]{
			value(headerLeaf(), func(p *rawPriority) *optional[string] { return &p.header }, doc{
				key: "header", def: defaults.Header,
				meaning: "The request header in which a caller names its class."}),
			value(classesLeaf(), func(p *rawPriority) *optional[map[string]int] { return &p.values }, doc{
				key: "map", def: "{high: 10}",
				meaning: "The priority of each header value; a higher number runs first. Values are compared exactly. A map replaces the default one. A value that is not listed is ignored and counted."}),
			value(numberLeaf(-maxPriority, maxPriority), func(p *rawPriority) *optional[int] { return &p.def }, doc{
				key: "default", def: fmt.Sprint(defaults.Default),
				meaning: "The priority of a request without a known value."}),
			value(wordLeaf[Trust](trustNames[:]), func(p *rawPriority) *optional[Trust] { return &p.trust }, doc{
				key: "trust", def: defaults.Trust.String(),
				meaning: "Whose header is believed: `all`, or with `internal` only that of requests Envoy marked `x-envoy-internal: true`."}),
		},
	}
}

func modelFields() object[rawModel] {
	return object[rawModel]{
		typ: "a model, such as {concurrency: 4, queue: 8}",
		fields: []field[rawModel]{
			concurrencyField(),
			value(numberLeaf(0, maxQueue), func(m *rawModel) *optional[int] { return &m.queue }, doc{
				key: "queue", required: true,
				meaning: "How many requests may wait for a slot in this process; one more is shed with `queue_full`. 0 lets none wait."}),
			value(wordLeaf[Order](orderNames[:], "adaptive"), func(m *rawModel) *optional[Order] { return &m.order }, doc{
				key: "order", def: OrderEDF.String(),
				meaning: "Who is next: `edf` is the highest priority, then the earliest deadline, then the earliest arrival."}),
			rewriteField(),
		},
	}
}

func splitFields() object[rawConcurrency] {
	return object[rawConcurrency]{
		typ: "a whole number or {total, replicas}",
		fields: []field[rawConcurrency]{
			value(numberLeaf(1, maxConcurrency), func(c *rawConcurrency) *optional[int] { return &c.total }, doc{
				key: "total", required: true,
				meaning: "How many requests all replicas together may have in flight."}),
			value(numberLeaf(1, maxReplicas), func(c *rawConcurrency) *optional[int] { return &c.replicas }, doc{
				key: "replicas", required: true,
				meaning: "How many brownout processes share the total. Each gets `total / replicas`, rounded down but at least 1."}),
		},
	}
}

func routeFields() object[rawRoute] {
	return object[rawRoute]{
		typ: "a route, such as {name: chat, ladder: [full]}",
		fields: []field[rawRoute]{
			value(nameLeaf(reservedRoutes()...), func(r *rawRoute) *optional[string] { return &r.name }, doc{
				key: "name", required: true,
				meaning: "The name of the route in metrics, logs and the generated Envoy configuration. Unique in the file."}),
			matchField(),
			ladderField(),
			value(wordLeaf[Failure](failureNames[:]), func(r *rawRoute) *optional[Failure] { return &r.failure }, doc{
				key: "failure", def: FailOpen.String(),
				meaning: "What Envoy does while brownout is away: `open` sends requests to the upstream unprotected, `closed` answers 503."}),
			nested(shedFields(), func(r *rawRoute) *rawShed { return &r.shed }, doc{
				key: "shed", meaning: "How a refused request is answered."}),
			nested(routeBudgetFields(), func(r *rawRoute) *rawBudget { return &r.budget }, doc{
				key: "budget", def: "the file's", meaning: "A budget for this route; what is left out is the file's."}),
			streamField(),
			value(timerLeaf(maxDwell), func(r *rawRoute) *optional[time.Duration] { return &r.dwell }, doc{
				key: "ladder_dwell", def: "the file's",
				meaning: "How long a lower tier with a `wait_over` that was entered because a better one was busy is kept to. A free slot in a better tier always wins. `0s`: not at all."}),
			mapped(cacheFields(), func(r *rawRoute) *part[rawCache] { return &r.cache }, doc{
				key: "cache", def: "answers are not kept",
				meaning: "Keeps complete answers of model tiers and gives them to requests that ask the same with the same credentials. Identical requests in flight share one call."}),
			mapped(idempotencyFields(), func(r *rawRoute) *part[rawIdempotency] { return &r.idempotency }, doc{
				key: "idempotency", def: "keys are not read",
				meaning: "Reads idempotency keys: a request that repeats a key and its payload gets the first one's answer."}),
			nested(retryFields(), func(r *rawRoute) *rawRetry { return &r.retry }, doc{
				key: "retry", meaning: "Whether Envoy may repeat a request that broke before its answer began."}),
			nested(onFields(), func(r *rawRoute) *rawOn { return &r.on }, doc{
				key: "on", meaning: "What is done about answers of a model that are of no use."}),
		},
	}
}

func shedFields() object[rawShed] {
	return object[rawShed]{
		typ:    "a mapping such as {status: {queue_full: 429}}",
		fields: []field[rawShed]{statusField()},
	}
}

func pathFields() object[rawPath] {
	return object[rawPath]{
		typ: "{prefix: /…} or {exact: /…}",
		fields: []field[rawPath]{
			value(pathLeaf(), func(p *rawPath) *optional[string] { return &p.prefix }, doc{
				key:     "prefix",
				meaning: "The path begins with these bytes. Plain text, not segments, as in Envoy: `/v1/chat` also matches `/v1/chatter`. Excludes `exact`."}),
			value(pathLeaf(), func(p *rawPath) *optional[string] { return &p.exact }, doc{
				key: "exact", meaning: "The path is exactly these bytes. Excludes `prefix`."}),
		},
	}
}

// reservedTiers are names a tier cannot have: x-degrade uses never, metrics use none and other, and defer is a
// tier of its own.
func reservedTiers() []string { return []string{"never", "none", "other", "defer"} }

// reservedRoutes are names a route cannot have: metrics use them.
func reservedRoutes() []string { return []string{"none", "other"} }

// reservedClasses are header values the priority map cannot have: metrics use them.
func reservedClasses() []string { return []string{"default", "other"} }

// reservedNote lists reserved names for the reference.
func reservedNote(names []string) string { return "not `" + strings.Join(names, "`, `") + "`" }
