package extproc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-brownout/brownout/policy"
)

const ms = time.Millisecond

// reply is a message of the processor.
type reply = pb.ProcessingResponse

// The seed's limiter: four run, eight wait.
const seedPolicy = `
version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
  stream: false
`

// One runs, one waits.
const narrowPolicy = `
version: 1
tiers:
  full: {model: {concurrency: 1, queue: 1}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
  stream: false
`

func compile(t testing.TB, src string) *policy.Snapshot {
	t.Helper()
	s, problems := policy.Parse("test.yaml", []byte(src))
	if s == nil {
		t.Fatalf("policy: %v", problems)
	}
	return s
}

// recorder is an Observer that keeps everything.
type recorder struct {
	mu      sync.Mutex // guards the fields below
	arrived []string
	records []Record
	waits   []string
	ignored []string
	stale   []bool
	replays map[string]int
}

func (r *recorder) Arrived(route string) { r.add(func() { r.arrived = append(r.arrived, route) }) }
func (r *recorder) Finished(f Record)    { r.add(func() { r.records = append(r.records, f) }) }
func (r *recorder) Ignored(name string)  { r.add(func() { r.ignored = append(r.ignored, name) }) }
func (r *recorder) EnvoyStale(s bool)    { r.add(func() { r.stale = append(r.stale, s) }) }
func (r *recorder) Replayed(result string) {
	r.add(func() {
		if r.replays == nil {
			r.replays = make(map[string]int)
		}
		r.replays[result]++
	})
}
func (r *recorder) Waited(tier, class string, d time.Duration) {
	r.add(func() { r.waits = append(r.waits, fmt.Sprintf("%s/%s %s", tier, class, d)) })
}

func (r *recorder) add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// outcomes counts the records by outcome.
func (r *recorder) outcomes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, f := range r.records {
		n[f.Outcome]++
	}
	return n
}

// last is the latest record.
func (r *recorder) last() Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 0 {
		return Record{}
	}
	return r.records[len(r.records)-1]
}

// rig is a server behind an in-memory listener with one client connection, as one worker of Envoy has.
type rig struct {
	t     testing.TB
	srv   *Server
	obs   *recorder
	conn  *grpc.ClientConn
	began time.Time
}

// bubble runs fn against a server in fake time. When fn returns every stream is ended, the books must balance and no
// slot may be held; a goroutine that is left makes synctest fail.
func bubble(t *testing.T, src string, o Options, fn func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, src, o)
		fn(r)
		synctest.Wait()
	})
}

func newRig(t testing.TB, src string, o Options) *rig {
	r := &rig{t: t, obs: &recorder{}, began: time.Now()}
	if o.Observer == nil {
		o.Observer = r.obs
	}
	r.srv = New(compile(t, src), o)
	g := grpc.NewServer(ServerOptions(8 << 20)...)
	r.srv.Register(g)
	var served sync.WaitGroup
	r.conn = serveInMemory(t, g, &served)
	t.Cleanup(func() {
		if err := r.conn.Close(); err != nil {
			t.Error(err)
		}
		g.GracefulStop()
		r.srv.Close()
		served.Wait()
		r.balanced()
	})
	return r
}

// serveInMemory serves g on an in-memory listener and dials it.
func serveInMemory(t testing.TB, g *grpc.Server, served *sync.WaitGroup) *grpc.ClientConn {
	lis := bufconn.Listen(1 << 20)
	served.Go(func() {
		if err := g.Serve(lis); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// balanced checks the books of a server nobody uses any more.
func (r *rig) balanced() {
	r.t.Helper()
	y := r.srv.Tally()
	if y.InFlight != 0 || y.Unaccounted != 0 || y.Arrived != y.Finished {
		r.t.Errorf("books do not balance: %+v", y)
	}
	for _, tier := range r.srv.Dump(false).Tiers {
		if tier.Used != 0 || tier.Waiting != 0 {
			r.t.Errorf("tier %s: %d slots held, %d waiting, want none", tier.Tier, tier.Used, tier.Waiting)
		}
	}
}

func (r *rig) since() time.Duration { return time.Since(r.began) }

// used is how many slots of the first tier are held, waiting how many wait for one.
func (r *rig) used() int    { return r.srv.Dump(false).Tiers[0].Used }
func (r *rig) waiting() int { return r.srv.Dump(false).Tiers[0].Waiting }

// call is one request's stream, seen from Envoy. Its methods may run on any goroutine.
type call struct {
	r     *rig
	s     pb.ExternalProcessor_ProcessClient
	abort context.CancelFunc
}

// open opens a stream; md are names and values of what Envoy announces. A test that waits for what never comes goes on
// after a minute of its time.
func (r *rig) open(md ...string) *call { return r.openFor(time.Minute, md...) }

func (r *rig) openFor(d time.Duration, md ...string) *call {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(r.t.Context(), md...), d)
	r.t.Cleanup(cancel)
	s, err := pb.NewExternalProcessorClient(r.conn).Process(ctx)
	if err != nil {
		r.t.Errorf("open a stream: %v", err)
	}
	return &call{r: r, s: s, abort: cancel}
}

func (c *call) send(m *pb.ProcessingRequest) {
	if err := c.s.Send(m); err != nil {
		c.r.t.Errorf("send: %v", err)
	}
}

// next is the next message of the processor, as show tells it.
func (c *call) next() string {
	m, err := c.s.Recv()
	if err != nil {
		return "end"
	}
	return show(m)
}

// ask sends the headers of a request and returns the reply; an extended timeout is not one.
func (c *call) ask(headers ...string) string {
	c.send(chat(headers...))
	return c.reply()
}

func (c *call) reply() string {
	for {
		if got := c.next(); !strings.HasPrefix(got, "extend ") {
			return got
		}
	}
}

// answer sends the headers of an upstream's answer and returns the reply.
func (c *call) answer(status int, headers ...string) string {
	c.send(answer(status, "via_upstream", headers...))
	return c.next()
}

// finish lets the upstream answer well and ends the exchange as Envoy does.
func (c *call) finish() {
	c.r.t.Helper()
	c.answer(200, "content-type", "application/json")
	c.send(trailers())
	if got := c.next(); got != "trailers" {
		c.r.t.Errorf("trailers: got %q", got)
	}
	c.close()
}

func (c *call) close() {
	if err := c.s.CloseSend(); err != nil {
		c.r.t.Errorf("close: %v", err)
	}
	if got := c.next(); got != "end" {
		c.r.t.Errorf("after the end: %s", got)
	}
}

func (c *call) expect(what, got, want string) {
	c.r.t.Helper()
	if got != want {
		c.r.t.Errorf("%s at %s:\n got %q\nwant %q", what, c.r.since(), got, want)
	}
}

// The messages of Envoy.

func chat(headers ...string) *pb.ProcessingRequest {
	return request("POST", "/v1/chat/completions", headers...)
}

func request(method, path string, headers ...string) *pb.ProcessingRequest {
	hs := append([]string{":method", method, ":path", path}, headers...)
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{
		RequestHeaders: &pb.HttpHeaders{Headers: headerMap(hs...)}}}
}

// answer is an answer with a body; details are Envoy's response code details, "" for an Envoy that does not say.
func answer(status int, details string, headers ...string) *pb.ProcessingRequest {
	hs := append([]string{":status", strconv.Itoa(status)}, headers...)
	m := &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &pb.HttpHeaders{Headers: headerMap(hs...)}}}
	if details != "" {
		m.Attributes = map[string]*structpb.Struct{attributesKey: {Fields: map[string]*structpb.Value{
			"response.code_details": structpb.NewStringValue(details)}}}
	}
	return m
}

func trailers() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseTrailers{ResponseTrailers: &pb.HttpTrailers{}}}
}

func requestBody() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestBody{RequestBody: &pb.HttpBody{Body: []byte("{}")}}}
}

func responseBody() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseBody{ResponseBody: &pb.HttpBody{Body: []byte("{}")}}}
}

func requestTrailers() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestTrailers{RequestTrailers: &pb.HttpTrailers{}}}
}

// headerMap puts names and values the way Envoy does: in raw_value.
func headerMap(kv ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return m
}

// show tells a message of the processor in one line.
func show(m *pb.ProcessingResponse) string {
	if d := m.GetOverrideMessageTimeout(); d != nil && m.GetResponse() == nil {
		return "extend " + d.AsDuration().String()
	}
	switch r := m.GetResponse().(type) {
	case *pb.ProcessingResponse_RequestHeaders:
		if m.GetModeOverride().GetResponseHeaderMode() == mode.ProcessingMode_SKIP {
			return "pass"
		}
		return "continue" + mutation(r.RequestHeaders.GetResponse().GetHeaderMutation().GetSetHeaders())
	case *pb.ProcessingResponse_ResponseHeaders:
		hm := r.ResponseHeaders.GetResponse().GetHeaderMutation()
		var gone strings.Builder
		for _, name := range hm.GetRemoveHeaders() {
			if !strings.HasPrefix(name, "x-brownout-") { // those are removed from every answer
				gone.WriteString(" -" + name)
			}
		}
		return "answer" + mutation(hm.GetSetHeaders()) + gone.String()
	case *pb.ProcessingResponse_ImmediateResponse:
		return fmt.Sprintf("reply %d %s", r.ImmediateResponse.GetStatus().GetCode(), r.ImmediateResponse.GetBody())
	case *pb.ProcessingResponse_RequestBody:
		return "request body"
	case *pb.ProcessingResponse_ResponseBody:
		return "response body"
	case *pb.ProcessingResponse_RequestTrailers:
		return "request trailers"
	case *pb.ProcessingResponse_ResponseTrailers:
		return "trailers"
	}
	return "nothing"
}

func mutation(hs []*corev3.HeaderValueOption) string {
	out := make([]string, 0, len(hs))
	for _, h := range hs {
		out = append(out, " "+h.GetHeader().GetKey()+"="+string(h.GetHeader().GetRawValue()))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}
