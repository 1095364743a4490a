package replay

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// notReplayed are headers of the first exchange alone: hop-by-hop ones (RFC 9110 §7.6.1), those of its time and its
// connection, cookies and authentication, traces, and our own labels, which a replay sets anew.
var notReplayed = [...]string{
	"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
	"age", "alt-svc", "content-length", "date", "openai-processing-ms", "server-timing", "via",
	"authentication-info", "clear-site-data", "proxy-authentication-info", "set-cookie", "set-cookie2", "www-authenticate",
	"b3", "baggage", "cf-ray", "traceparent", "tracestate", "x-amzn-trace-id", "x-cloud-trace-context", "x-correlation-id",
	outcome.HeaderRetryAfter, outcome.HeaderRetryAfterMs, outcome.HeaderShouldRetry,
	outcome.HeaderTier, outcome.HeaderDegraded, outcome.HeaderDegradedReason, outcome.HeaderSource, "idempotent-replayed",
}

var notReplayedPrefixes = [...]string{":", "x-b3-", "x-brownout-", "x-envoy-", "x-datadog-"}

// Parts of names of which every provider has its own spelling.
var notReplayedParts = [...]string{"ratelimit", "rate-limit", "request-id", "requestid"}

// EndToEnd are the headers that a replay repeats. It takes the names in lower case and returns a new slice.
func EndToEnd(hs []outcome.Header) []outcome.Header {
	named := connectionNames(hs)
	out := make([]outcome.Header, 0, len(hs))
	for _, h := range hs {
		if replayed(h.Name) && !slices.Contains(named, h.Name) {
			out = append(out, h)
		}
	}
	return out
}

func replayed(name string) bool {
	if slices.Contains(notReplayed[:], name) {
		return false
	}
	for _, p := range notReplayedPrefixes {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	for _, p := range notReplayedParts {
		if strings.Contains(name, p) {
			return false
		}
	}
	return true
}

// connectionNames are the headers that Connection makes hop-by-hop.
func connectionNames(hs []outcome.Header) []string {
	var out []string
	for name := range members(hs, "connection") {
		out = append(out, strings.ToLower(name))
	}
	return out
}

// AnswerKept says whether an answer allows to be kept, and for how long it may be called fresh at most: math.MaxInt64 when
// it states nothing. Its no-store, private, max-age=0 and s-maxage=0 forbid it. So does a Vary on a header that is no part
// of the key: neither a credential nor one of the key's headers nor in partition. no-cache does not: servers put it on
// every event stream, to keep proxies from holding events back.
func AnswerKept(hs []outcome.Header, partition ...string) (most time.Duration, ok bool) {
	for _, d := range [...]string{"no-store", "private"} {
		if _, found := CacheControl(hs, d); found {
			return 0, false
		}
	}
	for name := range members(hs, "vary") {
		if !inKey(strings.ToLower(name), partition) {
			return 0, false
		}
	}
	most = math.MaxInt64
	for _, d := range [...]string{"s-maxage", "max-age"} { // RFC 9111 §5.2.2.10: s-maxage overrides max-age
		v, found := CacheControl(hs, d)
		if !found {
			continue
		}
		most = seconds(v)
		break
	}
	return most, most > 0
}

// inKey says whether requests that differ in a header have different keys, or answers that do not depend on it.
// accept-encoding is taken off what goes upstream; access-control-request-* belong to preflights.
func inKey(name string, partition []string) bool {
	return slices.Contains(keyHeaders[:], name) || slices.Contains(credentialHeaders[:], name) || slices.Contains(partition, name) ||
		name == "accept-encoding" || name == "content-type" || strings.HasPrefix(name, "access-control-request-")
}

// seconds reads delta-seconds (RFC 9111 §1.2.2). What is no number is 0, stale at once (§4.2.1).
func seconds(v string) time.Duration {
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return 0
	}
	if n > uint64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// CacheControl finds a directive of the cache-control headers, by its name in lower case, and its argument without quotes.
func CacheControl(hs []outcome.Header, directive string) (value string, found bool) {
	for m := range members(hs, "cache-control") {
		name, arg, _ := strings.Cut(m, "=")
		if strings.EqualFold(strings.TrimSpace(name), directive) {
			return strings.Trim(strings.TrimSpace(arg), `"`), true
		}
	}
	return "", false
}

// members yields the members of a comma list that may stretch over several lines. Commas within quotes part members too:
// that can only add one, and so only forbid more.
func members(hs []outcome.Header, name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, h := range hs {
			if h.Name != name {
				continue
			}
			for m := range strings.SplitSeq(h.Value, ",") {
				if m = strings.TrimSpace(m); m != "" && !yield(m) {
					return
				}
			}
		}
	}
}

// baseMediaType is a content type without its parameters, in lower case. Several are kept apart.
func baseMediaType(lines []string) string {
	var out []string
	for _, l := range lines {
		base, _, _ := strings.Cut(l, ";")
		out = append(out, strings.ToLower(strings.TrimSpace(base)))
	}
	return strings.Join(out, ",")
}
