package engine

import (
	"strings"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/jsonedit"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/policy"
)

// headerStainlessRetry counts the retries of SDKs made with Stainless (OpenAI's, Anthropic's).
const headerStainlessRetry = "x-stainless-retry-count"

// hints are what the headers say about the body and the keys.
type hints struct {
	encoded bool     // the body cannot be read
	noCache bool     // no kept answer may be given
	sdkTry  bool     // the caller repeats the request by itself
	accept  string   // the media types it takes
	idem    []string // the lines of its idempotency key, where the route reads them
}

func (a *Admission) readHints() (out hints) {
	for _, h := range a.req.Headers {
		switch h.Name {
		case "content-encoding":
			out.encoded = out.encoded || !strings.EqualFold(strings.TrimSpace(h.Value), "identity")
		case "cache-control", "pragma":
			out.noCache = out.noCache || strings.Contains(strings.ToLower(h.Value), "no-cache")
		case "accept":
			out.accept = h.Value
		case headerStainlessRetry:
			out.sdkTry = out.sdkTry || strings.TrimSpace(h.Value) != "0"
		}
		if i := a.route.Idempotency; i != nil && h.Name == i.Header {
			out.idem = append(out.idem, h.Value)
		}
	}
	return out
}

// readFacts reads what the decision needs of the body, and returns the body as far as it can be read.
func (a *Admission) readFacts(h hints, body []byte) []byte {
	if h.encoded {
		body = nil
	}
	a.facts = dialect.ReadRequest(a.req.Dialect, a.req.Path, h.accept, body)
	a.bypass, a.sdkTry = h.noCache, h.sdkTry
	if a.route.rewrites {
		a.body = body
	}
	return body
}

// readBody reads what the decision needs of the body and makes the keys. A body that cannot be read has none: the request
// is decided all the same. False: the request is refused with the reply.
func (a *Admission) readBody(body []byte) (outcome.Reply, bool) {
	h := a.readHints()
	readable := a.readFacts(h, body)
	defer func() { a.req.Headers = nil }()
	if len(h.idem) > 0 {
		value, ok := replay.ParseIdempotencyKey(h.idem)
		if !ok {
			return a.malformedKey(), false
		}
		a.makeClaim(value, body)
	}
	a.makeCacheKey(readable)
	return outcome.Reply{}, true
}

func (a *Admission) subject() replay.Subject {
	return replay.Subject{Route: a.route.Name, Method: a.req.Method, Path: a.req.Host + a.req.Path, Headers: a.req.Headers}
}

// makeClaim makes the key of an idempotency key. Its fingerprint is the exact canonical JSON; of a body that is none, or is
// encoded, the body itself.
func (a *Admission) makeClaim(value string, body []byte) {
	canonical, err := jsonedit.Canon{}.Append(nil, body)
	if err != nil {
		canonical = body
	}
	var partition []string
	if c := a.route.Cache; c != nil {
		partition = c.Partition
	}
	a.idem, a.print, a.claims = a.e.keys.Idempotency(a.subject(), value, partition...), a.e.keys.Fingerprint(canonical), true
}

// makeCacheKey makes the key under which the answer may be kept, if it may.
func (a *Admission) makeCacheKey(body []byte) {
	key, why := a.cacheKey(body)
	if why != "" {
		a.e.note("not_kept")
		return
	}
	a.cache, a.keyed = key, a.route.Cache != nil
}

// Why the body of a request keeps its answer from being kept, beside the reasons of dialect.Facts.Unkept.
const (
	whyBody        = "body"        // it is no JSON object that can be read
	whyTemperature = "temperature" // it asks for an answer that differs each time
)

func (a *Admission) cacheKey(body []byte) (replay.Key, string) {
	c := a.route.Cache
	if c == nil {
		return replay.Key{}, ""
	}
	canonical, why := a.canonical(c, body)
	if why != "" {
		return replay.Key{}, why
	}
	return a.e.keys.Cache(a.subject(), canonical, cacheRules(c))
}

// canonical is the body as it is part of the key, or why it makes none.
func (a *Admission) canonical(c *policy.Cache, body []byte) ([]byte, string) {
	switch {
	case !a.facts.Object:
		return nil, whyBody
	case a.facts.Unkept != "":
		return nil, a.facts.Unkept
	case a.facts.Sampled && !c.Sampled:
		return nil, whyTemperature
	}
	canon := jsonedit.Canon{Ignore: c.Ignore}
	if c.Normalize == policy.NormalizeWhitespace {
		canon.Text = dialect.PromptText(a.req.Dialect)
	}
	canonical, err := canon.Append(nil, body)
	if err != nil {
		return nil, whyBody
	}
	return canonical, ""
}

func cacheRules(c *policy.Cache) replay.CacheRules {
	return replay.CacheRules{Schema: c.Schema, Partition: c.Partition, Anonymous: c.Anonymous}
}

// rewrite is what is changed of the request so that it reaches the tier's model.
func (a *Admission) rewrite(rung int) Rewrite {
	r := a.c.policy.Tiers[a.route.Ladder[rung].Tier].Model.Rewrite
	out := Rewrite{Named: r.Model != "" || r.Path != ""}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, outcome.Header{Name: h.Name, Value: h.Value})
	}
	path := a.req.Path
	if r.Path != "" {
		path = rewritePath(a.route.Match.Path, path, r.Path)
	}
	if r.Model != "" {
		if p, body, ok := dialect.RewriteModel(a.req.Dialect, path, a.body, r.Model); ok {
			path, out.Body = p, body
		}
	}
	if path != a.req.Path {
		out.Path = path
	}
	return out
}

// rewritePath replaces what the match compares.
func rewritePath(m policy.PathMatch, path, to string) string {
	clean, query, has := strings.Cut(path, "?")
	rest := ""
	if m.Exact == "" {
		rest = strings.TrimPrefix(clean, m.Prefix)
	}
	if has {
		return to + rest + "?" + query
	}
	return to + rest
}
