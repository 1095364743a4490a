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

// headerLeaf is the name of a request header. It is lower-cased: names are case-insensitive on the wire, and
// Envoy hands them over in lower case.
func headerLeaf() leaf[string] {
	return leaf[string]{
		shape: shape{
			typ:    "a header name (RFC 9110 token), lower-cased",
			limits: "1 to 128 characters; no name that brownout, Envoy or HTTP itself uses",
			schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: headerPattern} },
		},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			got, ok := d.text(n, "a header name")
			if !ok {
				return "", false
			}
			name := strings.ToLower(got)
			if message, hint := headerFault(got, name); message != "" {
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
	isReserved := slices.Contains(reservedHeaders, name) ||
		slices.ContainsFunc(reservedHeaderPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	if isReserved {
		return "header " + quote(name) + " is reserved", "it has a meaning of its own; choose another name"
	}
	return "", ""
}
