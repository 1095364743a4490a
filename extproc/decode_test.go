package extproc

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

func typeOf(v any) string { return fmt.Sprintf("%T", v) }

func headersSet(m *reply) []*corev3.HeaderValueOption {
	var out []*corev3.HeaderValueOption
	out = append(out, m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()...)
	out = append(out, m.GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()...)
	return append(out, m.GetImmediateResponse().GetHeaders().GetSetHeaders()...)
}

func TestRequestsAreDecoded(t *testing.T) {
	raw := func(k, v string) *corev3.HeaderValue { return &corev3.HeaderValue{Key: k, RawValue: []byte(v)} }
	for _, c := range []struct {
		name    string
		headers []*corev3.HeaderValue
		want    engine.Request
	}{
		{"nothing", nil, engine.Request{Headers: []outcome.Header{}}},
		{"raw values", []*corev3.HeaderValue{raw(":method", "POST"), raw(":path", "/v1/x?y=1"), raw("x-budget-ms", "100")},
			engine.Request{Method: "POST", Path: "/v1/x?y=1", Headers: []outcome.Header{{Name: "x-budget-ms", Value: "100"}}}},
		{"values, as other clients send them", []*corev3.HeaderValue{{Key: ":method", Value: "GET"}, {Key: "x-degrade", Value: "never"}},
			engine.Request{Method: "GET", Headers: []outcome.Header{{Name: "x-degrade", Value: "never"}}}},
		{"both: the raw one counts", []*corev3.HeaderValue{{Key: ":method", Value: "GET", RawValue: []byte("POST")}},
			engine.Request{Method: "POST", Headers: []outcome.Header{}}},
		{"an empty value", []*corev3.HeaderValue{raw("x-budget-ms", "")},
			engine.Request{Headers: []outcome.Header{{Name: "x-budget-ms"}}}},
		{"repeated headers stay repeated", []*corev3.HeaderValue{raw("x-budget-ms", "100"), raw("x-budget-ms", "50")},
			engine.Request{Headers: []outcome.Header{{Name: "x-budget-ms", Value: "100"}, {Name: "x-budget-ms", Value: "50"}}}},
		{"names in capitals", []*corev3.HeaderValue{raw("X-Budget-Ms", "100")},
			engine.Request{Headers: []outcome.Header{{Name: "x-budget-ms", Value: "100"}}}},
		{"bytes that are no text", []*corev3.HeaderValue{raw("x-priority", "\xff\x00")},
			engine.Request{Headers: []outcome.Header{{Name: "x-priority", Value: "\xff\x00"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decodeRequest(&pb.HttpHeaders{Headers: &corev3.HeaderMap{Headers: c.headers}})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	if got := decodeRequest(nil); got.Method != "" || len(got.Headers) != 0 {
		t.Errorf("a message without headers: %+v", got)
	}
}

func TestAnswersAreDecoded(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *pb.ProcessingRequest
		want session.ResponseHeaders
		told bool
	}{
		{"by the upstream", answer(200, "via_upstream", "content-type", "text/event-stream", "retry-after", "7", "x-degraded", "true"),
			session.ResponseHeaders{Status: 200, ContentType: "text/event-stream", Details: "via_upstream", Degraded: true, RetryAfter: "7"}, true},
		{"by Envoy", answer(503, "no_healthy_upstream"),
			session.ResponseHeaders{Status: 503, Details: "no_healthy_upstream", FromEnvoy: true}, true},
		{"without attributes", answer(503, ""), session.ResponseHeaders{Status: 503}, false},
		{"with other attributes", with(answer(503, ""), "request.path", structpb.NewStringValue("/")), session.ResponseHeaders{Status: 503}, false},
		{"with details that are no text", with(answer(503, ""), "response.code_details", structpb.NewNumberValue(3)),
			session.ResponseHeaders{Status: 503, FromEnvoy: true}, true},
		{"with a status that is no number", answer(200, "via_upstream", ":status", "ok"),
			session.ResponseHeaders{Details: "via_upstream"}, true},
		{"degraded, but not true", answer(200, "via_upstream", "x-degraded", "yes"),
			session.ResponseHeaders{Status: 200, Details: "via_upstream"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, told := decodeAnswer(c.m.GetResponseHeaders(), c.m.GetAttributes(), false)
			if diff := cmp.Diff(c.want, got); diff != "" || told != c.told {
				t.Errorf("told %v, want %v; -want +got\n%s", told, c.told, diff)
			}
		})
	}
}

// with adds one attribute.
func with(m *pb.ProcessingRequest, key string, v *structpb.Value) *pb.ProcessingRequest {
	m.Attributes = map[string]*structpb.Struct{attributesKey: {Fields: map[string]*structpb.Value{key: v}}}
	return m
}

// FuzzReceive feeds a stream any message Envoy could send, first or after an admitted request. It is answered with at
// most one message, in kind or in the upstream's place, and the books balance when the stream ends.
func FuzzReceive(f *testing.F) {
	for _, m := range []*pb.ProcessingRequest{
		chat(), chat("x-budget-ms", "0"), chat("x-budget-ms", " 12 ,x", "x-priority", "high"), request("GET", "/"),
		requestBody(), requestTrailers(), responseBody(), trailers(), answer(200, "via_upstream"), answer(503, "", "retry-after", "90"), {},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, false)
		f.Add(raw, true)
	}
	srv := New(compile(f, narrowPolicy), Options{})
	f.Cleanup(srv.Close)
	f.Fuzz(func(t *testing.T, raw []byte, admitted bool) {
		m := &pb.ProcessingRequest{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		var sent []*reply
		st := &stream{srv: srv, out: newOutbox(func(m *reply) error { sent = append(sent, m); return nil })}
		if admitted {
			st.receive(chat(), announced{})
			st.out.flush()
		}
		sent = nil
		st.receive(m, announced{})
		st.out.flush()
		if len(sent) > 1 {
			t.Errorf("%d answers to one message: %v", len(sent), sent)
		}
		for _, got := range sent {
			if !inKind(m, got) {
				t.Errorf("%v is answered with %v", m, got)
			}
		}
		st.end()
		y, used := srv.Tally(), srv.Dump(false).Tiers[0].Used
		if y.InFlight != 0 || y.Unaccounted != 0 || used != 0 {
			t.Errorf("books %+v, %d slots held", y, used)
		}
	})
}

// inKind says whether got is a legal answer to m.
func inKind(m *pb.ProcessingRequest, got *reply) bool {
	if got.GetImmediateResponse() != nil {
		return true
	}
	switch m.GetRequest().(type) {
	case *pb.ProcessingRequest_RequestHeaders:
		return got.GetRequestHeaders() != nil
	case *pb.ProcessingRequest_RequestBody:
		return got.GetRequestBody() != nil
	case *pb.ProcessingRequest_RequestTrailers:
		return got.GetRequestTrailers() != nil
	case *pb.ProcessingRequest_ResponseHeaders:
		return got.GetResponseHeaders() != nil
	case *pb.ProcessingRequest_ResponseBody:
		return got.GetResponseBody() != nil
	case *pb.ProcessingRequest_ResponseTrailers:
		return got.GetResponseTrailers() != nil
	}
	return false
}
