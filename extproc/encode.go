package extproc

import (
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

// Names of the headers sent upstream.
const (
	headerRemaining = "x-deadline-remaining-ms"
	headerCovers    = "x-deadline-covers"

	headerRetryOn    = envoy.RetryOnHeader
	headerMaxRetries = envoy.MaxRetriesHeader
	retryOn          = envoy.RetryOn
	maxRetries       = envoy.MaxRetries
)

// ownNames are the request headers only we may set. Envoy removes a caller's before routing
// (early_header_mutation_extensions); where that is not attached, this removes them from what goes upstream.
var ownNames = []string{headerSeal, headerID, outcome.HeaderDegraded, outcome.HeaderDegradedReason, outcome.HeaderSource, headerInner}

// ownNamesSealed are those that are removed when we set the others.
var ownNamesSealed = []string{outcome.HeaderDegraded, outcome.HeaderDegradedReason, outcome.HeaderSource, headerInner}

// set appends a header that overwrites whatever is there.
func set(dst []*corev3.HeaderValueOption, name, v string) []*corev3.HeaderValueOption {
	return append(dst, &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(v)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	})
}

// watched asks for the answer's body as a stream both ways, and for its trailers. All six fields are sent: those left out
// would fall back to the filter's own (Envoy: ProcessingResponse.mode_override).
func watched() *mode.ProcessingMode {
	return &mode.ProcessingMode{
		RequestHeaderMode:   mode.ProcessingMode_SEND,
		ResponseHeaderMode:  mode.ProcessingMode_SEND,
		RequestBodyMode:     mode.ProcessingMode_NONE,
		ResponseBodyMode:    mode.ProcessingMode_FULL_DUPLEX_STREAMED,
		RequestTrailerMode:  mode.ProcessingMode_SKIP,
		ResponseTrailerMode: mode.ProcessingMode_SEND,
	}
}

// encodeAskBody holds a request until its body is there, which Envoy then sends whole.
func encodeAskBody() *pb.ProcessingResponse {
	m := requestHeaders(&pb.CommonResponse{})
	m.ModeOverride = watched()
	m.ModeOverride.RequestBodyMode = mode.ProcessingMode_BUFFERED
	return m
}

// encodeContinue lets a request go upstream; the route is chosen anew because x-tier decides it. seal is what the route
// over the seal matches, and id whose answer it is; "" for the plain route.
func encodeContinue(c session.Continue, seal, id string) *pb.ProcessingResponse {
	m := requestHeaders(continuing(c, seal, id))
	if c.Watched {
		m.ModeOverride = watched()
	}
	return m
}

// encodeContinueWithBody does the same where the body was asked for.
func encodeContinueWithBody(c session.Continue, seal, id string) *pb.ProcessingResponse {
	common := continuing(c, seal, id)
	if c.Body != nil {
		h := common.HeaderMutation
		h.SetHeaders = set(h.SetHeaders, "content-length", strconv.Itoa(len(c.Body)))
		common.BodyMutation = &pb.BodyMutation{Mutation: &pb.BodyMutation_Body{Body: c.Body}}
	}
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestBody{RequestBody: &pb.BodyResponse{Response: common}}}
}

// continuing is what both say.
func continuing(c session.Continue, seal, id string) *pb.CommonResponse {
	covers := "first_content"
	if c.CoversWhole {
		covers = "whole"
	}
	hs := make([]*corev3.HeaderValueOption, 0, 3+len(c.Headers))
	for _, h := range c.Headers {
		hs = set(hs, h.Name, h.Value)
	}
	hs = set(hs, outcome.HeaderTier, c.Tier)
	hs = set(hs, headerRemaining, strconv.FormatInt(c.RemainingMillis, 10))
	hs = set(hs, headerCovers, covers)
	if c.Path != "" {
		hs = set(hs, ":path", c.Path)
	}
	if c.Rewritten {
		hs = set(hs, envoy.RouteHeader, c.Route)
	}
	if c.Retry {
		hs = set(set(hs, headerRetryOn, retryOn), headerMaxRetries, maxRetries)
	}
	remove := ownNames
	if seal != "" {
		hs = set(set(hs, headerSeal, seal), headerID, id)
		remove = ownNamesSealed
	}
	if c.Watched {
		remove = append(remove[:len(remove):len(remove)], "accept-encoding")
	}
	return &pb.CommonResponse{
		HeaderMutation:  &pb.HeaderMutation{SetHeaders: hs, RemoveHeaders: remove},
		ClearRouteCache: true,
	}
}

// encodePassThrough lets a request go on and asks to hear no more of it.
func encodePassThrough() *pb.ProcessingResponse {
	m := requestHeaders(&pb.CommonResponse{
		HeaderMutation: &pb.HeaderMutation{RemoveHeaders: append([]string{outcome.HeaderTier}, ownNames...)},
	})
	m.ModeOverride = &mode.ProcessingMode{
		RequestHeaderMode:   mode.ProcessingMode_SKIP,
		ResponseHeaderMode:  mode.ProcessingMode_SKIP,
		RequestBodyMode:     mode.ProcessingMode_NONE,
		ResponseBodyMode:    mode.ProcessingMode_NONE,
		RequestTrailerMode:  mode.ProcessingMode_SKIP,
		ResponseTrailerMode: mode.ProcessingMode_SKIP,
	}
	return m
}

func requestHeaders(c *pb.CommonResponse) *pb.ProcessingResponse {
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestHeaders{
		RequestHeaders: &pb.HeadersResponse{Response: c},
	}}
}

// encodeExtendTimeout is not a reply: Envoy restarts its message timer and keeps waiting for one.
func encodeExtendTimeout(d time.Duration) *pb.ProcessingResponse {
	return &pb.ProcessingResponse{OverrideMessageTimeout: durationpb.New(d)}
}

func encodeContinueAnswer(c session.ContinueAnswer) *pb.ProcessingResponse {
	common := &pb.CommonResponse{}
	if len(c.Set) > 0 || len(c.Remove) > 0 {
		hs := make([]*corev3.HeaderValueOption, 0, len(c.Set))
		for _, h := range c.Set {
			hs = set(hs, h.Name, h.Value)
		}
		common.HeaderMutation = &pb.HeaderMutation{SetHeaders: hs, RemoveHeaders: c.Remove}
	}
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &pb.HeadersResponse{Response: common},
	}}
}

func encodeContinueTrailers() *pb.ProcessingResponse {
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &pb.TrailersResponse{HeaderMutation: &pb.HeaderMutation{RemoveHeaders: []string{trailerCut}}},
	}}
}

// maxChunk is the largest piece of a body in one message (Envoy: StreamedBodyResponse).
const maxChunk = 64 << 10

// encodeSendBody sends a piece of a body in as many messages as it takes; the last carries the end.
func encodeSendBody(b session.SendBody) []*pb.ProcessingResponse {
	var out []*pb.ProcessingResponse
	rest := b.Data
	for first := true; first || len(rest) > 0; first = false {
		n := min(len(rest), maxChunk)
		out = append(out, &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseBody{
			ResponseBody: &pb.BodyResponse{Response: &pb.CommonResponse{BodyMutation: &pb.BodyMutation{
				Mutation: &pb.BodyMutation_StreamedResponse{StreamedResponse: &pb.StreamedBodyResponse{
					Body: rest[:n], EndOfStream: b.End && n == len(rest),
				}},
			}}},
		}})
		rest = rest[n:]
	}
	return out
}

// encodeReset makes Envoy reset the caller's stream: that is what it does with a reply of ours once headers have gone on.
func encodeReset() *pb.ProcessingResponse {
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &pb.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode_BadGateway},
			Details: "brownout_reset",
		},
	}}
}

func encodeContinueBody(p session.Phase) *pb.ProcessingResponse {
	body := &pb.BodyResponse{Response: &pb.CommonResponse{}}
	switch p {
	case session.RequestBody:
		return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestBody{RequestBody: body}}
	case session.ResponseBody:
		return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseBody{ResponseBody: body}}
	}
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestTrailers{
		RequestTrailers: &pb.TrailersResponse{},
	}}
}

// encodeReply answers in the upstream's place. The details show in Envoy's access log (%RESPONSE_CODE_DETAILS%).
func encodeReply(r outcome.Reply) *pb.ProcessingResponse {
	hs := make([]*corev3.HeaderValueOption, 0, len(r.Headers))
	for i, h := range r.Headers {
		hs = set(hs, h.Name, h.Value)
		if slices.ContainsFunc(r.Headers[:i], func(o outcome.Header) bool { return o.Name == h.Name }) { // a further line of it
			hs[i].AppendAction = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
	}
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &pb.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)},
			Headers: &pb.HeaderMutation{SetHeaders: hs},
			Body:    r.Body,
			Details: "brownout_" + r.Source.String(),
		},
	}}
}
