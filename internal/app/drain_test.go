package app

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// full is a server one of whose requests runs and one waits.
func full(t *testing.T, grace string) (s *serving, running, waiting *exchange) {
	t.Helper()
	s = startServe(t, narrow, "--grace", grace)
	conn := s.dial()
	running, waiting = open(t, conn), open(t, conn)
	running.request("x-budget-ms", "10000")
	running.expect("continue full")
	waiting.request("x-budget-ms", "10000")
	eventually(t, "one waits", func() bool { return s.state().Tiers[0].Waiting == 1 })
	return s, running, waiting
}

func TestATerminatedServerIsNotReadyAndServesWhatItHas(t *testing.T) {
	s, running, waiting := full(t, "15s")
	checks := watchHealth(t, s)
	for service, next := range checks {
		if got := next(); got != "SERVING" {
			t.Errorf("health of %q: %s", service, got)
		}
	}
	began := time.Now()
	s.stop()
	eventually(t, "not ready", func() bool { status, _ := s.get(s.public, "/readyz"); return status == 503 })
	if status, _ := s.get(s.public, "/healthz"); status != 200 {
		t.Errorf("/healthz while draining: %d", status)
	}
	for service, next := range checks {
		if got := next(); got != "NOT_SERVING" {
			t.Errorf("health of %q while draining: %s", service, got)
		}
		if got := next(); got != "end" { // the test ends its watch: a stream that never ends holds up the drain
			t.Errorf("health of %q after its end: %s", service, got)
		}
	}
	running.finish()
	waiting.expect("continue full")
	late := open(t, s.dial()) // Envoy has not yet noticed, and opens a connection
	late.request()
	eventually(t, "the late one waits", func() bool { return s.state().Tiers[0].Waiting == 1 })
	waiting.finish()
	late.expect("continue full")
	late.finish()
	if code := s.ended(); code != ExitOK {
		t.Errorf("exit %d:\n%s", code, s.log.String())
	}
	if took := time.Since(began); took < idleEnough || took > 10*time.Second {
		t.Errorf("it took %s, want it to end soon after everything has", took)
	}
	if entry, ok := s.log.find("draining"); !ok || entry["in_flight"] != 2.0 {
		t.Errorf("draining: %v", entry)
	}
	if _, ok := s.log.find("stopped"); !ok {
		t.Errorf("the log does not say that it has stopped:\n%s", s.log.String())
	}
	if _, err := os.Lstat(strings.TrimPrefix(s.listen, "unix:")); err == nil {
		t.Error("the socket is left behind")
	}
}

// watchHealth watches the health of the names Envoy may ask for; each call yields the next status. After NOT_SERVING
// the watch is ended.
func watchHealth(t *testing.T, s *serving) map[string]func() string {
	t.Helper()
	client := healthpb.NewHealthClient(s.dial())
	checks := map[string]func() string{}
	for _, service := range []string{"", serviceName} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		w, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		checks[service] = func() string {
			r, err := w.Recv()
			if err != nil {
				return "end"
			}
			if r.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING {
				cancel()
			}
			return r.GetStatus().String()
		}
	}
	return checks
}

func TestWhatStillWaitsIsRefusedOneSecondBeforeTheEnd(t *testing.T) {
	s, running, waiting := full(t, "1.3s")
	began := time.Now()
	s.stop()
	waiting.expect(`503 {"error":{"message":"capacity: shutting_down","type":"capacity","param":null,"code":"shutting_down"},"reason":"shutting_down"}`)
	if took := time.Since(began); took < 300*time.Millisecond || took > 1250*time.Millisecond {
		t.Errorf("refused after %s, want 300 ms: one second before the end", took)
	}
	if err := waiting.s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	waiting.expect("end")
	running.finish() // within the grace period
	if code := s.ended(); code != ExitOK {
		t.Errorf("exit %d:\n%s", code, s.log.String())
	}
}

func TestWhatStillRunsAtTheEndIsCutAndTheExitIsClean(t *testing.T) {
	s, running, waiting := full(t, "400ms")
	began := time.Now()
	s.stop()
	waiting.expect(`503 {"error":{"message":"capacity: shutting_down","type":"capacity","param":null,"code":"shutting_down"},"reason":"shutting_down"}`)
	running.expect("end")
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("cut after %s, want the whole grace period of 400 ms", took)
	}
	if code := s.ended(); code != ExitOK {
		t.Errorf("exit %d:\n%s", code, s.log.String())
	}
}

func TestWithoutAGracePeriodTheEndIsAtOnce(t *testing.T) {
	s, running, _ := full(t, "0s")
	s.stop()
	running.expect("end")
	if code := s.ended(); code != ExitOK {
		t.Errorf("exit %d:\n%s", code, s.log.String())
	}
}

// Envoy may have a request on its way when it is told that the connection will end (GOAWAY). It is still served.
func TestALateArrivalOnAConnectionThatEndsIsServed(t *testing.T) {
	s := startServe(t, narrow, "--grace", "15s")
	c := rawDial(t, strings.TrimPrefix(s.listen, "unix:"))
	c.request(1)
	if got := c.until(1); got.GetRequestHeaders() == nil {
		t.Fatalf("first reply %v", got)
	}
	c.must(c.f.WriteRSTStream(1, http2.ErrCodeCancel)) // its caller leaves
	s.stop()
	if got := c.until(0); got != nil {
		t.Fatalf("before the GOAWAY: %v", got)
	}
	c.request(3)
	got := c.until(3)
	if tier := firstSet(got.GetRequestHeaders().GetResponse().GetHeaderMutation()); tier != "full" {
		t.Errorf("reply to the late one: %v", got)
	}
	if err := c.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.ended(); code != ExitOK {
		t.Errorf("exit %d:\n%s", code, s.log.String())
	}
}

// rawConn is an HTTP/2 connection that, unlike a gRPC client, may open a stream after a GOAWAY.
type rawConn struct {
	t    *testing.T
	conn net.Conn
	f    *http2.Framer
}

func rawDial(t *testing.T, path string) *rawConn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &rawConn{t, conn, http2.NewFramer(conn, conn)}
	c.must(c.f.WriteSettings())
	return c
}

func (c *rawConn) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// request opens a stream and sends the headers of a chat request.
func (c *rawConn) request(stream uint32) {
	c.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "brownout"},
		{":path", pb.ExternalProcessor_Process_FullMethodName}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		c.must(enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	c.must(c.f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}))
	m, err := proto.Marshal(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{
		RequestHeaders: &pb.HttpHeaders{Headers: headerMap(":method", "POST", ":path", "/v1/chat/completions")}}})
	c.must(err)
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))) // not compressed, and its length
	c.must(c.f.WriteData(stream, false, append(prefix, m...)))
}

// until reads until the first message of a stream, or with stream 0 until a GOAWAY, which has no message. It answers
// no PING, so that the server cannot know that the GOAWAY has arrived.
func (c *rawConn) until(stream uint32) *pb.ProcessingResponse {
	c.t.Helper()
	for {
		f, err := c.f.ReadFrame()
		if errors.Is(err, io.EOF) {
			c.t.Fatal("the connection has ended")
		}
		c.must(err)
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if stream == 0 {
				return nil
			}
		case *http2.DataFrame:
			m := &pb.ProcessingResponse{}
			c.must(proto.Unmarshal(f.Data()[5:], m))
			if f.StreamID == stream || stream == 0 {
				return m
			}
		}
	}
}

func TestAServerThatIsStoppedWhileItStartsEndsCleanly(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	path, dir := policyFile(t, narrow), shortDir(t)
	for range 20 {
		var errs bytes.Buffer
		code := Main(ctx, []string{"serve", "--policy", path, "--listen", "unix:" + dir + "/s", "--http", "127.0.0.1:0", "--admin", "none", "--seal", "none", "--grace", "0s"},
			Stdio{In: strings.NewReader(""), Out: &errs, Err: &errs})
		if code != ExitOK {
			t.Fatalf("exit %d:\n%s", code, errs.String())
		}
	}
}
