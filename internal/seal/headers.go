package seal

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/envoy-brownout/brownout/envoy"
)

// hopByHop are the fields HTTP/2 forbids (RFC 9113 §8.2.2). Envoy has dealt with them; an inner server that is not Envoy
// may not have.
var hopByHop = [...]string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"}

// marks are the names the seal itself answers with. An upstream's own do not get through. x-brownout-inner is not among
// them: the inner Envoy removes it from what upstreams send and adds it to its own replies.
var marks = [...]string{http.CanonicalHeaderKey(envoy.SealHeader), http.CanonicalHeaderKey(envoy.CutTrailer)}

// target makes the URL of the forwarded request, so that its path and query are sent as they came. Opaque does that,
// except for a path that begins with two slashes, which it would read as an authority.
func target(r *http.Request) *url.URL {
	if strings.HasPrefix(r.RequestURI, "/") && !strings.HasPrefix(r.RequestURI, "//") || r.RequestURI == "*" {
		return &url.URL{Scheme: "http", Host: innerAddr, Opaque: r.RequestURI}
	}
	u := *r.URL
	u.Scheme, u.Host = "http", innerAddr
	return &u
}

// requestHeader prepares the header of the forwarded request, in place.
func requestHeader(h http.Header) http.Header {
	if len(h["User-Agent"]) == 0 {
		h["User-Agent"] = []string{""} // or net/http adds its own
	}
	return h
}

// copyHeader copies an answer's header to dst, without what is not the upstream's to say.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		if !slices.Contains(hopByHop[:], name) && !slices.Contains(marks[:], name) {
			dst[name] = values
		}
	}
}

// asItIs keeps net/http from adding a date, a content type and a content length of its own.
func asItIs(h http.Header) {
	for _, name := range []string{"Date", "Content-Type", "Content-Length"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
}

// announced lists the trailers the answer's header announced: net/http keeps them apart from the header.
func announced(trailer http.Header) []string {
	var names []string
	for name := range trailer {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// copyTrailer sends an answer's trailers, announced or not.
func copyTrailer(dst http.Header, declared []string, src http.Header) {
	for name, values := range src {
		switch {
		case len(values) == 0: // announced and not sent; a frame of no trailers would never end the answer for Envoy
		case slices.Contains(marks[:], name) || strings.EqualFold(name, envoy.InnerHeader):
		case slices.Contains(declared, name):
			dst[name] = values
		default:
			dst[http.TrailerPrefix+name] = values
		}
	}
}

// repairable reports whether an ending can be appended to a body with this header: the session knows its format and can
// read it.
func repairable(h http.Header) bool {
	for _, e := range h["Content-Encoding"] {
		if e != "" && !strings.EqualFold(e, "identity") {
			return false
		}
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil && media == "" {
		return false
	}
	switch media {
	case "text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/json":
		return true
	}
	return strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

// bodyAllowed reports whether an answer has a body at all (RFC 9110 §6.4.1).
func bodyAllowed(method string, status int) bool {
	return method != http.MethodHead && status != http.StatusNoContent && status != http.StatusNotModified
}

// brokeBeforeHeaders reports whether the details of a reply of the inner Envoy's own mean that the upstream gave no answer
// (Envoy: RESPONSE_CODE_DETAILS), rather than that Envoy refused the request.
func brokeBeforeHeaders(details string) bool {
	for _, prefix := range []string{
		"upstream_", // reset, overflow, time out of any kind
		"no_healthy_upstream", "cluster_not_found", "maintenance_mode", "response_timeout", "request_overall_timeout", "overload",
	} {
		if strings.HasPrefix(details, prefix) {
			return true
		}
	}
	return false
}
