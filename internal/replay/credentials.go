package replay

import (
	"net/url"
	"strings"
)

// credentialHeaders say who is asking. x-forwarded-client-cert is how Envoy tells the peer of a mutual TLS connection.
var credentialHeaders = [...]string{
	"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key",
	"x-auth-token", "x-access-token", "x-amz-security-token", "x-goog-iam-authorization-token", "x-forwarded-client-cert", "cookie",
}

// credentialParams do the same in a query; they are compared in lower case.
var credentialParams = [...]string{"key", "api-key", "api_key", "apikey", "access_token", "subscription-key"}

// keyHeaders are headers that change an answer without saying who asks.
var keyHeaders = [...]string{
	"accept", "accept-language", "origin", "anthropic-beta", "anthropic-version", "openai-beta", "openai-organization",
	"openai-project", "x-goog-user-project",
}

// splitCredentials takes the credentials out of a path's query: clear is the path without them, secrets are their pairs as
// they were written, in order.
func splitCredentials(path string) (clear string, secrets []string) {
	head, query, ok := strings.Cut(path, "?")
	if !ok {
		return path, nil
	}
	var rest []string
	for pair := range strings.SplitSeq(query, "&") {
		if isCredential(pair) {
			secrets = append(secrets, pair)
		} else {
			rest = append(rest, pair)
		}
	}
	if secrets == nil {
		return path, nil
	}
	if rest == nil {
		return head, secrets
	}
	return head + "?" + strings.Join(rest, "&"), secrets
}

// isCredential looks at the decoded name of a pair, as a server does. A pair without a value identifies nobody.
func isCredential(pair string) bool {
	name, value, _ := strings.Cut(pair, "=")
	if value == "" {
		return false
	}
	decoded, err := url.QueryUnescape(name)
	if err != nil {
		return false
	}
	for _, p := range credentialParams {
		if strings.EqualFold(decoded, p) {
			return true
		}
	}
	return false
}
