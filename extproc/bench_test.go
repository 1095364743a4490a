package extproc

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

// typicalRequest is what Envoy forwards of a chat request.
func typicalRequest() *pb.ProcessingRequest {
	return chat(":authority", "api.example.com", ":scheme", "https", "content-type", "application/json", "content-length", "412",
		"x-request-id", "5cf22b2f-8a4c-4a39-9e17-3c1d6a1f7a52", "x-envoy-internal", "true", "x-budget-ms", "2500", "x-priority", "high")
}

var (
	shedReply = outcome.ShedReply(outcome.ShedQueueFull, 503, 700*time.Millisecond)
	goOn      = session.Continue{Tier: "full", RemainingMillis: 2450, CoversWhole: true}
)

// The budgets are what was measured, so that one more allocation per request shows.
func TestTranslatingStaysWithinItsAllocations(t *testing.T) {
	request, response := typicalRequest().GetRequestHeaders(), answer(200, "via_upstream", "content-type", "application/json")
	for _, c := range []struct {
		name   string
		budget float64
		run    func()
	}{
		{"decodeRequest", 11, func() { decodeRequest(request) }}, // the slice, and a string per raw value
		{"decodeAnswer", 1, func() { decodeAnswer(response.GetResponseHeaders(), response.GetAttributes(), false) }},
		{"encodeContinue", 16, func() { encodeContinue(goOn, "", "") }},
		{"encodeReply", 22, func() { encodeReply(shedReply) }},
	} {
		if got := testing.AllocsPerRun(100, c.run); got > c.budget {
			t.Errorf("%s: %.0f allocations, budget %.0f", c.name, got, c.budget)
		} else {
			t.Logf("%s: %.0f of %.0f allocations", c.name, got, c.budget)
		}
	}
}

func BenchmarkDecodeRequest(b *testing.B) {
	m := typicalRequest().GetRequestHeaders()
	b.ReportAllocs()
	for b.Loop() {
		decodeRequest(m)
	}
}

func BenchmarkEncodeContinue(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		encodeContinue(goOn, "", "")
	}
}

func BenchmarkEncodeReply(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		encodeReply(shedReply)
	}
}

// BenchmarkStream is one admitted request without gRPC: decode, decide, step, encode, account. One op is a request of
// three messages and its closure.
func BenchmarkStream(b *testing.B) {
	srv := New(compile(b, seedPolicy), Options{})
	defer srv.Close()
	msgs := []*pb.ProcessingRequest{typicalRequest(), answer(200, "via_upstream"), trailers()}
	b.ReportAllocs()
	for b.Loop() {
		st := &stream{srv: srv, out: newOutbox(func(*reply) error { return nil })}
		for _, m := range msgs {
			st.receive(m, announced{})
			st.out.flush()
		}
		st.end()
	}
}

// noop is an external processor that decides nothing: the floor that gRPC itself sets.
type noop struct {
	pb.UnimplementedExternalProcessorServer
}

func (noop) Process(g pb.ExternalProcessor_ProcessServer) error {
	for {
		m, err := g.Recv()
		if err != nil {
			return nil
		}
		out := &reply{Response: &pb.ProcessingResponse_ResponseTrailers{ResponseTrailers: &pb.TrailersResponse{}}}
		switch m.GetRequest().(type) {
		case *pb.ProcessingRequest_RequestHeaders:
			out.Response = &pb.ProcessingResponse_RequestHeaders{RequestHeaders: &pb.HeadersResponse{}}
		case *pb.ProcessingRequest_ResponseHeaders:
			out.Response = &pb.ProcessingResponse_ResponseHeaders{ResponseHeaders: &pb.HeadersResponse{}}
		}
		if err := g.Send(out); err != nil {
			return err
		}
	}
}

// BenchmarkExchange is one whole exchange over a Unix socket, client included: open a stream, request headers, answer
// headers, trailers, end. "noop" is a processor that decides nothing; "ratio" takes turns and reports how many times
// as long the exchange with brownout takes.
//
//	go test ./extproc -run '^$' -bench Exchange -count 10 | benchstat -
func BenchmarkExchange(b *testing.B) {
	srv := New(compile(b, seedPolicy), Options{})
	b.Cleanup(srv.Close)
	ours, floor := dialUnix(b, srv.Register), dialUnix(b, func(r grpc.ServiceRegistrar) { pb.RegisterExternalProcessorServer(r, noop{}) })
	msgs := []*pb.ProcessingRequest{typicalRequest(), answer(200, "via_upstream"), trailers()}
	for _, peer := range []struct {
		name   string
		client pb.ExternalProcessorClient
	}{{"brownout", ours}, {"noop", floor}} {
		b.Run(peer.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				exchange(b, peer.client, msgs)
			}
		})
	}
	b.Run("ratio", func(b *testing.B) {
		var took [2]time.Duration
		for b.Loop() {
			for i, client := range []pb.ExternalProcessorClient{ours, floor} {
				began := time.Now()
				exchange(b, client, msgs)
				took[i] += time.Since(began)
			}
		}
		b.ReportMetric(float64(took[0])/float64(took[1]), "times-noop")
	})
}

func exchange(b *testing.B, client pb.ExternalProcessorClient, msgs []*pb.ProcessingRequest) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s, err := client.Process(ctx)
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range msgs {
		if err := s.Send(m); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		b.Fatal(err)
	}
	if _, err := s.Recv(); err == nil {
		b.Fatal("the stream goes on")
	}
}

// dialUnix serves what register registers on a Unix socket and dials it.
func dialUnix(b *testing.B, register func(grpc.ServiceRegistrar)) pb.ExternalProcessorClient {
	path := filepath.Join(b.TempDir(), "s")
	lis, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer(ServerOptions(8 << 20)...)
	register(g)
	var served sync.WaitGroup
	served.Go(func() {
		if err := g.Serve(lis); err != nil {
			b.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := conn.Close(); err != nil {
			b.Error(err)
		}
		g.Stop()
		served.Wait()
	})
	return pb.NewExternalProcessorClient(conn)
}
