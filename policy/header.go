package policy

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// Header names a policy may not choose for its own request headers: what brownout reads or writes itself, what
// Envoy owns, and what frames the message. A name listed twice would have two meanings.
var (
	reservedHeaderPrefixes = []string{"x-degraded", "x-brownout-", "x-envoy-", "brownout-"}
	reservedHeaders        = []string{
		"x-tier", "x-degrade", "x-max-queue-ms", "x-deadline-remaining-ms", "x-deadline-covers", "x-should-retry",
		"x-accel-buffering", "idempotency-key", "idempotent-replayed", "prefer", "cache-control", "grpc-timeout",
		"retry-after", "retry-after-ms", "age", "accept-encoding",
		"host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "content-type", "content-encoding", "authorization", "cookie",
	}
)

// headerLeaf is the name of a request header that only the policy gives a meaning.
func headerLeaf() leaf[string] {
	return headerNameLeaf("no name that brownout, Envoy or HTTP itself uses", headerFault)
}

// headerNameLeaf is the name of a request header that fault has nothing against. It is lower-cased: names are
// case-insensitive on the wire, and Envoy hands them over in lower case.
func headerNameLeaf(limits string, fault func(got, name string) (message, hint string)) leaf[string] {
	return leaf[string]{
		shape: shape{
			typ:    "a header name (RFC 9110 token), lower-cased",
			limits: "1 to 128 characters; " + limits,
			schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: headerPattern} },
		},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			got, ok := d.text(n, "a header name")
			if !ok {
				return "", false
			}
			name := strings.ToLower(got)
			if message, hint := fault(got, name); message != "" {
				d.errorNode(n, message, hint)
				return "", false
			}
			return name, true
		},
	}
}

// headerFault says what is wrong with the header name got, whose lower-case form is name; empty means nothing.
func headerFault(got, name string) (message, hint string) {
	if strings.HasPrefix(got, ":") {
		return quote(got) + " is a pseudo-header", "choose an ordinary header, such as x-budget-ms"
	}
	if !headerForm.MatchString(got) {
		return quote(got) + " is not a header name", "letters, digits and - only, at most 128 characters"
	}
	if isReserved(name) {
		return "header " + quote(name) + " is reserved", "it has a meaning of its own; choose another name"
	}
	return "", ""
}

func isReserved(name string) bool {
	return slices.Contains(reservedHeaders, name) ||
		slices.ContainsFunc(reservedHeaderPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// keyHeaderFault is headerFault for the header of idempotency keys, which has a reserved name by default.
func keyHeaderFault(got, name string) (message, hint string) {
	if name == DefaultIdempotency().Header {
		return "", ""
	}
	return headerFault(got, name)
}

// credentialHeaders are request headers by which callers say who they are. They are part of every cache key, and none
// of them is set by a policy, which is no place for secrets.
func credentialHeaders() []string {
	return []string{"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
}

// partitionFault is headerFault for a header that splits the key of a cache.
func partitionFault(got, name string) (message, hint string) {
	switch {
	case slices.Contains(credentialHeaders(), name):
		return "header " + quote(name) + " splits the key already", "credentials always do: remove it"
	case strings.HasPrefix(name, "x-envoy-"): // what Envoy knows of the caller splits a key as well as what the caller says
		return "", ""
	}
	return headerFault(got, name)
}

// rewriteFault is headerFault for a header that a tier sets.
func rewriteFault(got, name string) (message, hint string) {
	if slices.Contains(credentialHeaders(), name) {
		return "header " + quote(name) + " carries credentials, which are no policy", "have Envoy set it, from a secret"
	}
	return headerFault(got, name)
}
