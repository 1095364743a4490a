package engine

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-brownout/brownout/internal/jsonedit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/policy"
)

// CacheWhy says what a request's answer is kept under, or why it is not kept.
type CacheWhy struct {
	Kept      bool     `json:"kept"`
	Why       []string `json:"not_kept_because"` // "body", "temperature", those of dialect.Facts.Unkept, of replay.Keys.Cache
	Bypass    bool     `json:"bypass"`           // what is kept is not given to this request
	Tenant    []string `json:"tenant"`           // names of the headers and query parameters that say who asks
	Partition []string `json:"partition"`        // headers of the policy that part tenants further
	Absent    []string `json:"partition_absent"` // …that the request lacks
	Headers   []string `json:"headers"`          // further headers that are part of the key
	Schema    string   `json:"schema"`
	Normalize string   `json:"normalize"`
	Ignored   []string `json:"ignored_members"` // members of the body that the policy leaves out
	Fresh     Millis   `json:"fresh_for_ms"`
	StaleFor  Millis   `json:"stale_for_ms,omitempty"`
}

// explainCache is nil on a route that keeps nothing.
func explainCache(a *Admission, h hints, body []byte) *CacheWhy {
	c := a.route.Cache
	if c == nil {
		return nil
	}
	out := &CacheWhy{Why: []string{}, Bypass: h.noCache, Schema: c.Schema, Normalize: "whitespace", Fresh: Millis(c.TTL),
		StaleFor: Millis(a.route.keepFor - c.TTL), Tenant: tenantParts(a), Headers: keyParts(a), Ignored: ignoredMembers(c.Ignore, body),
		Partition: []string{}, Absent: []string{}}
	if c.Normalize == policy.NormalizeExact {
		out.Normalize = "exact"
	}
	for _, name := range c.Partition {
		if slices.ContainsFunc(a.req.Headers, func(h outcome.Header) bool { return h.Name == name }) {
			out.Partition = append(out.Partition, name)
		} else {
			out.Absent = append(out.Absent, name)
		}
	}
	canonical, why := a.canonical(c, body)
	if why != "" {
		out.Why = append(out.Why, why)
	}
	if _, why := a.e.keys.Cache(a.subject(), canonical, cacheRules(c)); why != "" {
		out.Why = append(out.Why, why)
	}
	out.Kept = len(out.Why) == 0
	return out
}

// tenantParts are the names of what says who asks: of headers, and of parameters of the query behind a "?".
func tenantParts(a *Admission) []string {
	out := []string{}
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, h := range a.req.Headers {
		if isCredential(a, h) {
			add(h.Name)
		}
	}
	_, query, _ := strings.Cut(a.req.Path, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if _, anonymous := a.e.keys.Tenant(replay.Subject{Path: "?" + pair}, nil); !anonymous {
			name, _, _ := strings.Cut(pair, "=")
			add("?" + name)
		}
	}
	return out
}

// keyParts are the names of the headers without which the key were another, beside the tenant's.
func keyParts(a *Admission) []string {
	rules := replay.CacheRules{Anonymous: true}
	key := func(without string) (replay.Key, string) {
		s := replay.Subject{Method: "POST"} // what else the key is made of does not matter here
		for _, h := range a.req.Headers {
			if h.Name != without && !isCredential(a, h) && h.Name != "cache-control" {
				s.Headers = append(s.Headers, h)
			}
		}
		return a.e.keys.Cache(s, nil, rules)
	}
	whole, whyWhole := key("")
	out := []string{}
	for _, h := range a.req.Headers {
		if isCredential(a, h) || slices.Contains(out, h.Name) {
			continue
		}
		if k, why := key(h.Name); k != whole || why != whyWhole {
			out = append(out, h.Name)
		}
	}
	return out
}

// ignoredMembers are those of ignore that the body has.
func ignoredMembers(ignore []string, body []byte) []string {
	out := []string{}
	whole, err := jsonedit.Canon{}.Append(nil, body)
	if err != nil {
		return out
	}
	for _, name := range ignore {
		if less, err := (jsonedit.Canon{Ignore: []string{name}}).Append(nil, body); err == nil && !bytes.Equal(less, whole) {
			out = append(out, name)
		}
	}
	return out
}

// IdempotencyWhy is what is made of an idempotency key.
type IdempotencyWhy struct {
	Header string `json:"header"`
	State  string `json:"state"` // absent, valid or malformed
	Why    string `json:"why,omitempty"`
	Length int    `json:"length,omitempty"` // of a valid key
	TTL    Millis `json:"kept_for_ms"`
}

// explainIdempotency is nil on a route that reads no such keys.
func explainIdempotency(a *Admission, h hints) *IdempotencyWhy {
	i := a.route.Idempotency
	if i == nil {
		return nil
	}
	out := &IdempotencyWhy{Header: i.Header, State: "absent", TTL: Millis(i.TTL)}
	if len(h.idem) == 0 {
		return out
	}
	if key, ok := replay.ParseIdempotencyKey(h.idem); ok {
		out.State, out.Length = "valid", len(key)
		return out
	}
	out.State, out.Why = "malformed", malformed(h.idem)
	return out
}

// malformed says what is wrong with an idempotency key that replay.ParseIdempotencyKey does not take, without showing it.
func malformed(lines []string) string {
	if len(lines) > 1 {
		return "it is there " + strconv.Itoa(len(lines)) + " times"
	}
	s := strings.Trim(lines[0], " \t")
	quoted := strings.HasPrefix(s, `"`)
	outside := strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	switch {
	case strings.Trim(s, `"`) == "":
		return "it is empty"
	case outside:
		return "it has a character that is not printable ASCII"
	case !quoted && strings.Contains(s, ","):
		return "it has a comma, which is what two keys merged by a proxy look like; quote it if it is one key"
	case !quoted && strings.Contains(s, `"`):
		return "it has a quote inside"
	case !quoted:
		return "it is longer than 255 characters"
	}
	return "it is no quoted string of 1 to 255 characters"
}
