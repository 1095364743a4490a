package extproc

import (
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

// attributesKey is where Envoy puts the attributes the filter asked for.
const attributesKey = "envoy.filters.http.ext_proc"

// viaUpstream is the response code detail of an answer the upstream wrote (Envoy: HTTP response code details).
const viaUpstream = "via_upstream"

// Names between brownout and the two Envoys around the seal.
const (
	headerSeal  = envoy.SealHeader
	headerID    = envoy.SealIDHeader
	headerInner = envoy.InnerHeader
	trailerCut  = envoy.CutTrailer

	sealUnreachable = envoy.SealUnreachable
)

// Headers in which upstreams say more than their status: why llm-d's endpoint picker gave a request up, and the error
// type of Amazon Bedrock.
const (
	headerDropped = "x-llm-d-request-dropped-reason"
	headerAmazon  = "x-amzn-errortype"
)

// decodeTrailers reads the trailers of an answer.
func decodeTrailers(m *pb.HttpTrailers, sealed bool) session.ResponseTrailers {
	var ev session.ResponseTrailers
	for _, h := range m.GetTrailers().GetHeaders() {
		if h.GetKey() == trailerCut && sealed {
			ev.Cut = true
		}
	}
	return ev
}

// value reads a header value: Envoy sends raw_value only; other ext_proc clients may fill value.
func value(h *corev3.HeaderValue) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}

// decodeRequest reads the headers of a request for the engine.
func decodeRequest(m *pb.HttpHeaders) engine.Request {
	hs := m.GetHeaders().GetHeaders()
	r := engine.Request{Headers: make([]outcome.Header, 0, len(hs))}
	for _, h := range hs {
		switch name := h.GetKey(); name {
		case ":method":
			r.Method = value(h)
		case ":path":
			r.Path = value(h)
		case ":authority":
			r.Host = strings.ToLower(value(h))
		case "content-length":
			r.Length, _ = strconv.ParseInt(value(h), 10, 64)
		default:
			r.Headers = append(r.Headers, outcome.Header{Name: strings.ToLower(name), Value: value(h)})
		}
	}
	return r
}

// allHeaders is all of a message's headers but the pseudo headers.
func allHeaders(m *pb.HttpHeaders) []outcome.Header {
	hs := m.GetHeaders().GetHeaders()
	out := make([]outcome.Header, 0, len(hs))
	for _, h := range hs {
		if name := h.GetKey(); !strings.HasPrefix(name, ":") {
			out = append(out, outcome.Header{Name: strings.ToLower(name), Value: value(h)})
		}
	}
	return out
}

// decodeAnswer reads the headers of an answer for the session. told is false when Envoy did not send the attributes
// that tell its own answers from the upstream's: they then count as the upstream's.
func decodeAnswer(m *pb.HttpHeaders, attrs map[string]*structpb.Struct, sealed bool) (ev session.ResponseHeaders, told bool) {
	ev.EndOfBody = m.GetEndOfStream()
	ev.Attempts = int(attrs[attributesKey].GetFields()["upstream.request_attempt_count"].GetNumberValue())
	inner, unreachable := "", false
	for _, h := range m.GetHeaders().GetHeaders() {
		switch h.GetKey() {
		case ":status":
			ev.Status, _ = strconv.Atoi(value(h))
		case "content-type":
			ev.ContentType = value(h)
		case outcome.HeaderDegraded:
			ev.Degraded = value(h) == "true"
		case outcome.HeaderRetryAfter:
			ev.RetryAfter = value(h)
		case outcome.HeaderRetryAfterMs:
			ev.RetryAfterMs = value(h)
		case "content-encoding":
			ev.Encoded = !strings.EqualFold(strings.TrimSpace(value(h)), "identity")
		case headerDropped:
			ev.Dropped, _ = dialect.ByDroppedReason(value(h))
			ev.NoRetry = value(h) == dialect.DroppedTTL
		case headerAmazon:
			ev.Dropped, _ = dialect.ByErrorType(value(h))
		case headerInner:
			inner = value(h)
		case headerSeal:
			unreachable = value(h) == sealUnreachable
		}
	}
	if sealed && (inner != "" || unreachable) { // the Envoy behind the seal wrote it
		ev.FromEnvoy, ev.Details = true, inner
		return ev, true
	}
	details, told := attrs[attributesKey].GetFields()["response.code_details"]
	if told {
		ev.Details = details.GetStringValue()
		ev.FromEnvoy = ev.Details != viaUpstream
	}
	return ev, told
}

// pathOnly is path without its query.
func pathOnly(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}
