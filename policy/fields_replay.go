package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// The fields of a route about answers that are given again, repeated or replaced.

// Bounds of what is kept of a route's answers.
const (
	minKept     = time.Millisecond
	maxSchema   = 64 // characters
	maxIgnored  = 64
	maxMember   = 128 // characters
	maxPartedBy = 16
	maxDwell    = time.Hour
)

// anonymous and onEmpty are closed sets of two words, booleans in a snapshot.
type (
	anonymous uint8
	onEmpty   uint8
)

const (
	anonymousNever anonymous = iota
	anonymousShare
	numAnonymous
)

const (
	onEmptyPass onEmpty = iota
	onEmptyNext
	numOnEmpty
)

func cacheFields() object[rawCache] {
	def := DefaultCache()
	return object[rawCache]{
		typ: "a cache, such as {ttl: 60s}",
		fields: []field[rawCache]{
			value(durationLeaf(minKept, maxKept), func(c *rawCache) *optional[time.Duration] { return &c.ttl }, doc{
				key: "ttl", def: short(def.TTL), meaning: "How long an answer is fresh."}),
			value(markLeaf("a schema", maxSchema), func(c *rawCache) *optional[string] { return &c.schema }, doc{
				key: "schema", meaning: "The version of your prompts. It is part of the key: with another one nothing that was kept before is found."}),
			value(wordLeaf[Normalize](normalizeNames[:]), func(c *rawCache) *optional[Normalize] { return &c.normalize }, doc{
				key: "normalize", def: def.Normalize.String(),
				meaning: "How prompts are compared: trimmed and with runs of white space taken for one blank (`whitespace`), or byte for byte, for code (`exact`). Case always matters."}),
			value(listLeaf("a list of members", maxIgnored, memberLeaf()), func(c *rawCache) *optional[[]string] { return &c.ignore }, doc{
				key: "ignore", meaning: "Top-level members of the request's JSON that are no part of the key, such as `user` or `metadata`."}),
			value(listLeaf("a list of header names", maxPartedBy, partitionLeaf()), func(c *rawCache) *optional[[]string] { return &c.partition }, doc{
				key: "partition", meaning: "Request headers that split the key beside the caller's credentials, which always do."}),
			value(wordLeaf[anonymous](anonymousNames[:]), func(c *rawCache) *optional[anonymous] { return &c.anonymous }, doc{
				key: "anonymous", def: anonymousNames[0],
				meaning: "What is done with requests without credentials: their answers are not kept (`never`), or they share them with one another (`share`)."}),
			value(boolLeaf(), func(c *rawCache) *optional[bool] { return &c.sampled }, doc{
				key: "sampled", def: fmt.Sprint(def.Sampled),
				meaning: "Whether answers to requests that state a `temperature` above 0 are kept too."}),
		},
	}
}

// partitionLeaf is a header that splits the key of a cache.
func partitionLeaf() leaf[string] {
	return headerNameLeaf("no credentials and no name that brownout or HTTP itself uses", partitionFault)
}

// saying are members that say what is asked, or in which form the answer comes.
func saying() []string {
	return []string{"model", "stream", "messages", "prompt", "input", "contents", "system", "instructions"}
}

// memberLeaf is a top-level member that a key can do without.
func memberLeaf() leaf[string] {
	l := markLeaf("a member's name", maxMember)
	l.limits += ", not `" + strings.Join(saying(), "`, `") + "`"
	inner := l.read
	l.read = func(d *decoder, n *yaml.Node) (string, bool) {
		got, ok := inner(d, n)
		if ok && slices.Contains(saying(), got) {
			d.errorNode(n, "member "+quote(got)+" cannot be ignored", "requests that differ in it need different answers")
			return "", false
		}
		return got, ok
	}
	return l
}

func idempotencyFields() object[rawIdempotency] {
	def := DefaultIdempotency()
	return object[rawIdempotency]{
		typ: "a mapping such as {ttl: 24h}",
		fields: []field[rawIdempotency]{
			value(headerNameLeaf("no other name that brownout, Envoy or HTTP itself uses", keyHeaderFault),
				func(i *rawIdempotency) *optional[string] { return &i.header }, doc{
					key: "header", def: def.Header, meaning: "The request header that carries the key."}),
			value(durationLeaf(minKept, maxKept), func(i *rawIdempotency) *optional[time.Duration] { return &i.ttl }, doc{
				key: "ttl", def: short(def.TTL), meaning: "How long an answer is repeated."}),
		},
	}
}

func retryFields() object[rawRetry] {
	return object[rawRetry]{
		typ: "a mapping such as {retries: 1}",
		fields: []field[rawRetry]{
			value(numberLeaf(0, 1), func(r *rawRetry) *optional[int] { return &r.retries }, doc{
				key: "retries", def: "0",
				meaning: "How often Envoy repeats a request whose upstream could not be reached or broke before the answer's headers, after a random pause, where time and the retry budget allow. Never after a status."}),
			value(numberLeaf(0, 100), func(r *rawRetry) *optional[int] { return &r.budget }, doc{
				key: "budget", def: strconv.Itoa(DefaultRetryBudget),
				meaning: "The most requests of those under way, and of those of the last ten seconds, that may be repeated, in percent. Three always may: `budget: 0` means just those, 100 is no bound."}),
		},
	}
}

func onFields() object[rawOn] {
	return object[rawOn]{
		typ: "a mapping such as {empty: next}",
		fields: []field[rawOn]{
			value(wordLeaf[onEmpty](onEmptyNames[:]), func(o *rawOn) *optional[onEmpty] { return &o.empty }, doc{
				key: "empty", def: onEmptyNames[0],
				meaning: "What becomes of a JSON answer without any content: it is passed on (`pass`), or replaced by the next tier of the ladder that needs no compute (`next`). A refusal is an answer."}),
		},
	}
}

// replay compiles what of r's answers is given again.
func (c *compiler) replay(raw rawRoute, r *Route, s *Snapshot) {
	if raw.cache.set {
		def, v := DefaultCache(), raw.cache.v
		r.Cache = &Cache{
			TTL:       v.ttl.or(def.TTL),
			Schema:    v.schema.or(def.Schema),
			Normalize: v.normalize.or(def.Normalize),
			Ignore:    slices.Clone(v.ignore.or(nil)),
			Partition: slices.Clone(v.partition.or(nil)),
			Anonymous: v.anonymous.or(anonymousNever) == anonymousShare,
			Sampled:   v.sampled.or(def.Sampled),
		}
	}
	if raw.idempotency.set {
		def, v := DefaultIdempotency(), raw.idempotency.v
		r.Idempotency = &Idempotency{Header: v.header.or(def.Header), TTL: v.ttl.or(def.TTL)}
		for name, other := range map[string]string{"budget.header": s.Budget.Header, "priority.header": s.Priority.Header} {
			if v.header.ok && v.header.v == other {
				c.errorAt(v.header.at, "header "+quote(other)+" is both idempotency.header and "+name, "choose two names")
			}
		}
	}
	if !raw.stream.off {
		return
	}
	const unseen, hint = " needs the answers, which stream: false passes on unseen", "remove one of the two"
	if raw.cache.set {
		c.errorAt(raw.cache.at, "cache"+unseen, hint)
	}
	if raw.idempotency.set {
		c.errorAt(raw.idempotency.at, "idempotency"+unseen, hint)
	}
}

// replacesEmpty compiles `on`, and warns where nothing can ever be replaced.
func (c *compiler) replacesEmpty(raw rawRoute, ladder []Rung) bool {
	empty := raw.on.empty
	if empty.or(onEmptyPass) != onEmptyNext {
		return false
	}
	idle := !slices.ContainsFunc(ladder, func(r Rung) bool { return !c.file.tiers[r.Tier].model.set })
	switch {
	case raw.stream.off:
		c.warnAt(empty.at, "empty: next never replaces an answer: stream: false passes answers on unseen", "remove one of the two")
	case idle && len(ladder) > 0 && !raw.ladder.bad:
		c.warnAt(empty.at, "empty: next never replaces an answer: no tier of the ladder can do without compute", "add a cache or a template tier, or remove it")
	}
	return true
}
