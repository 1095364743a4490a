package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// caseHeldHeaders is C55: headers wait for the first event, unless the policy says not to; then a late start can no
// longer be a status. Envoy 1.39 keeps the headers of a duplex body until its first piece, whatever the plugin says.
func caseHeldHeaders(t *testing.T, e *caseEnv, id string) {
	only139 := testkit.EnvoyBefore(t, 1, 40) && !testkit.EnvoyBefore(t, 1, 39)
	const think = 900 * time.Millisecond
	for route, want := range map[string]bool{id: true, id + "-at-once": only139} {
		inChunks(partial+"data: [DONE]\n\n", func(way string, s script) {
			s.think = think
			k, v := e.u.add(route+way, s)
			began := time.Now()
			resp := e.open(t, route, genericPath, k, v)
			if resp == nil {
				return
			}
			defer resp.Body.Close()
			took := time.Since(began)
			if held := took >= think; held != want {
				t.Errorf("%s, %s: headers after %s", route, way, took)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != partial+"data: [DONE]\n\n" || err != nil {
				t.Errorf("%s, %s: %q, %v", route, way, body, err)
			}
		})
	}
}

// open sends a request to a case's route and returns its answer unread; the caller closes it. nil: it failed.
func (e *caseEnv) open(t *testing.T, route, path string, headers ...string) *http.Response {
	t.Helper()
	return e.openAt(t, "/"+route+path, headers...)
}

// openAt is open for any path.
func (e *caseEnv) openAt(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.s.envoy.URL(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := e.c.Do(req)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return nil
	}
	return resp
}

// lockstep is an upstream that writes a frame only after the one before has arrived.
type lockstep struct {
	arrived chan struct{}
	wrote   atomic.Int64
}

const lockstepFrames = 300

func (l *lockstep) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("content-type", "text/event-stream")
	for i := range lockstepFrames {
		l.wrote.Store(time.Now().UnixNano())
		fmt.Fprintf(w, "data: {\"n\":%d}\n\n", i)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-l.arrived:
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// run reads one stream frame by frame and returns what each took.
func (l *lockstep) run(t *testing.T, c *http.Client, url string) (took []time.Duration, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4096)
	for i := range lockstepFrames {
		want, got := fmt.Sprintf("data: {\"n\":%d}\n\n", i), ""
		for len(got) < len(want) {
			n, err := resp.Body.Read(buf)
			got += string(buf[:n])
			if err != nil {
				t.Fatalf("frame %d: %q, %v", i, got, err)
			}
		}
		if got != want {
			t.Fatalf("frame %d: %q", i, got)
		}
		took = append(took, time.Duration(time.Now().UnixNano()-l.wrote.Load()))
		l.arrived <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: [DONE]\n\n" || err != nil {
		t.Fatalf("the end: %q, %v", rest, err)
	}
	return took[lockstepFrames/10:], resp.Header // connections are open and warm by then
}

// caseNoBuffering is C56: a frame arrives although the next is not written yet, hops in front are told not to wait
// either, and watching and sealing add less than a millisecond. A virtual machine that stands still for some milliseconds
// spoils a p99, so one quiet round of several is enough.
func caseNoBuffering(t *testing.T, e *caseEnv, _ string) {
	l := &lockstep{arrived: make(chan struct{})}
	s := startStack(t, stackOptions{policy: delayPolicy, scheme: e.upstream, upstreamAddr: startModel(t, l)})
	c := newClient(t, e.h2)
	const rounds = 12
	var best time.Duration
	for round := range rounds {
		plain, _ := l.run(t, c, s.envoy.URL("/plain"))
		sealed, header := l.run(t, c, s.envoy.URL("/sealed"))
		if header.Get("x-accel-buffering") != "no" {
			t.Errorf("x-accel-buffering is %q", header.Get("x-accel-buffering"))
		}
		added := percentile(sealed, 99) - percentile(plain, 99)
		if round == 0 || added < best {
			best = added
		}
		if added < time.Millisecond {
			t.Logf("%s: a frame takes %s plain and %s sealed (p99 of %d; medians %s, %s)", e.name, percentile(plain, 99), percentile(sealed, 99), len(sealed), percentile(plain, 50), percentile(sealed, 50))
			return
		}
	}
	t.Errorf("in the quietest of %d rounds the p99 of a frame rose by %s", rounds, best)
}

// caseNoBody is C58: answers without a body get none from us, whatever they say they are.
func caseNoBody(t *testing.T, e *caseEnv, id string) {
	for _, status := range []int{204, 304} {
		k, v := e.u.add(fmt.Sprint(id, status), script{status: status})
		if a := e.post(t, id, genericPath, "{}", k, v); a.status != status || a.body != "" || a.err != nil {
			t.Errorf("%d: %v", status, a)
		}
	}
	k, v := e.u.add(id+"empty", script{header: map[string]string{"content-type": "text/event-stream", "content-length": "0"}})
	for _, path := range []string{genericPath, chatURL} {
		if a := e.post(t, id, path, "{}", k, v); a.status != 200 || a.body != "" || a.err != nil {
			t.Errorf("content-length: 0 on %s: %v", path, a)
		}
	}
	k, v = e.u.add(id+"head", script{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, e.s.envoy.URL("/"+id+genericPath), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(k, v)
	if a := do(e.c, req); a.status != 200 || a.body != "" || a.err != nil {
		t.Errorf("HEAD: %v", a)
	}
	if n := e.counted(id, "truncated"); n != [2]int{5, 0} {
		t.Errorf("%d of %d are said to be truncated", n[1], n[0])
	}
}

// processing is a stream to the real brownout by which this test plays Envoy.
type processing struct {
	t *testing.T
	pb.ExternalProcessor_ProcessClient
}

// process opens a stream to a stack's brownout.
func process(t *testing.T, s *stack) processing {
	t.Helper()
	conn, err := grpc.NewClient(s.socket("extproc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := pb.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return processing{t, stream}
}

func headersOf(pairs ...string) *pb.HttpHeaders {
	h := &pb.HttpHeaders{Headers: &core.HeaderMap{}}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

func (p processing) send(m *pb.ProcessingRequest) {
	p.t.Helper()
	if err := p.Send(m); err != nil {
		p.t.Fatal(err)
	}
}

func (p processing) body(data string, end bool) {
	p.t.Helper()
	p.send(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseBody{ResponseBody: &pb.HttpBody{Body: []byte(data), EndOfStream: end}}})
}

// begin admits a streamed chat request and starts its answer.
func (p processing) begin() {
	p.t.Helper()
	p.send(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{RequestHeaders: headersOf(":method", "POST", ":path", chatURL, ":scheme", "http", ":authority", "x")}})
	if m, err := p.Recv(); err != nil || m.GetModeOverride().GetResponseBodyMode().String() != "FULL_DUPLEX_STREAMED" {
		p.t.Fatalf("%v, %v: want an admission that asks for the body in full duplex", m, err)
	}
	p.send(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseHeaders{ResponseHeaders: headersOf(":status", "200", "content-type", "text/event-stream")}})
}

// read returns the replies up to the end of the body, and the body they make.
func (p processing) read() (body string) {
	p.t.Helper()
	for {
		m, err := p.Recv()
		if err != nil {
			p.t.Fatalf("after %q: %v", body, err)
		}
		if m.GetResponseHeaders() != nil {
			continue
		}
		mutation := m.GetResponseBody().GetResponse().GetBodyMutation()
		piece := mutation.GetStreamedResponse()
		if piece == nil || mutation.GetBody() != nil || mutation.GetClearBody() || len(piece.GetBody()) > 64<<10 {
			p.t.Fatalf("%v: want a streamed response of at most 64 KiB", m)
		}
		if body += string(piece.GetBody()); piece.GetEndOfStream() {
			return body
		}
	}
}

// caseOnlyStreamedReplies is C60: to a duplex body nothing but streamed responses is said, as Envoy's counter confirms.
func caseOnlyStreamedReplies(t *testing.T, e *caseEnv, id string) {
	in := CH("a") + CH(strings.Repeat("b", 200<<10)) + FIN("stop") + DONE
	inChunks(in, func(way string, s script) {
		if len(s.chunks) > 2 {
			s.chunks = append([]string{in[:len(in)-500]}, pieces(in[len(in)-500:], 1)...)
		}
		k, v := e.u.add(id+way, s)
		if a := e.post(t, id, chatURL, "{}", k, v); a.status != 200 || a.body != in || a.err != nil {
			t.Errorf("%s: %d of %d bytes, %v", way, len(a.body), len(in), a.err)
		}
	})
	if n := e.s.envoy.Stats("http.front.ext_proc.stream_msgs_received"); n == 0 {
		t.Error("Envoy counts no messages of ours: the name of its counter is another")
	}
	if n := e.s.envoy.Stats("http.front.ext_proc.spurious_msgs_received"); n != 0 {
		t.Errorf("Envoy had no use for %d messages of ours", n)
	}
	s := startStack(t, stackOptions{scheme: e.upstream})
	p := process(t, s)
	p.begin()
	p.body(in, true)
	if got := p.read(); got != in {
		t.Errorf("%d of %d bytes", len(got), len(in))
	}
}

// caseLastPieceTwice is C61: Envoy may deliver the last piece twice, with its bytes; it is judged and ended once.
func caseLastPieceTwice(t *testing.T, e *caseEnv, _ string) {
	s := startStack(t, stackOptions{scheme: e.upstream})
	for in, want := range map[string]string{CH("a") + FIN("stop") + DONE: "", CH("a"): P("upstream_truncated")} {
		for _, cut := range []int{0, len(in) / 2, len(in) - 1} {
			p := process(t, s)
			p.begin()
			if cut > 0 {
				p.body(in[:cut], false)
			}
			p.body(in[cut:], true)
			if got := p.read(); got != in+want {
				t.Errorf("cut at %d: %q, want %q", cut, got, in+want)
			}
			p.body(in[cut:], true)
			if err := p.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if m, err := p.Recv(); err != io.EOF {
				t.Errorf("cut at %d: the last piece came again: %v, %v, want no reply and the end", cut, m, err)
			}
		}
	}
	for outcome, n := range map[string]int{"ok": 3, "truncated": 3} {
		if got := s.metric("brownout_requests_total", "outcome", outcome); got != n {
			t.Errorf("%d requests ended as %s, want %d", got, outcome, n)
		}
	}
	if n := s.metric("brownout_terminal_frames_total"); n != 3 {
		t.Errorf("%d endings, want 3", n)
	}
}

// caseAbortBetweenChunks is C64: the caller leaves between two chunks. The upstream is cancelled and not blamed.
func caseAbortBetweenChunks(t *testing.T, e *caseEnv, id string) {
	in := CH("a") + CH("b")
	for _, route := range []string{id, id + "-open"} {
		before, cuts := e.counted(route, "client_aborted"), e.counted(route, "truncated")
		n := inChunks(in, func(way string, s script) {
			s.end = hang
			k, v := e.u.add(route+way, s)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.s.envoy.URL("/"+route+chatURL), nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set(k, v)
			resp, err := e.c.Do(req)
			if err != nil {
				t.Errorf("%s: %v", way, err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, len(CH("a")))); err != nil {
				t.Errorf("%s: %v", way, err)
			}
			leave()
		})
		outcome := "client_aborted"
		if route != id { // without the seal a caller that leaves looks like an upstream that dies
			outcome, before = "truncated", cuts
		}
		e.outcomes(t, route, outcome, before, n)
		testkit.Eventually(t, 5*time.Second, func() bool { return e.cancelled(route) == n }, "an upstream was not cancelled")
	}
}

// cancelled is how many calls of scripts whose names begin so were left by their client.
func (e *caseEnv) cancelled(prefix string) (n int) {
	e.u.mu.Lock()
	defer e.u.mu.Unlock()
	for name, c := range e.u.cancelled {
		if strings.HasPrefix(name, prefix+"chunking") {
			n += c
		}
	}
	return n
}

// caseBrownoutDies is C65: what fails before the first piece of a body lets the route's policy decide; what fails behind
// it must not look whole. Whoever comes then is served.
func caseBrownoutDies(t *testing.T, e *caseEnv, _ string) {
	u := startScripted(t)
	s := startStack(t, stackOptions{policy: strings.Replace(openAndClosed, "concurrency: 4", "concurrency: 40", 1), scheme: e.upstream, upstreamAddr: address(u)})
	c := newClient(t, e.h2)
	whole := CH("a") + FIN("stop") + DONE
	u.add("late", script{wait: 1500 * time.Millisecond, chunks: []string{whole}})
	before := s.background(c, unsealedPath, "x-script", "late")
	s.waitInflight("full", 1, 0)
	var behind []*http.Response
	own := &caseEnv{wire: e.wire, s: s, u: u, c: c}
	for i, way := range [][]string{{CH("a")}, pieces(CH("a"), 1), {CH("a")[:50], CH("a")[50:]}} {
		k, v := u.add(fmt.Sprint("running", i), script{chunks: way, end: hang})
		for _, path := range []string{chatPath, unsealedPath, strictPath} {
			if resp := own.openAt(t, path, k, v); resp != nil { // with headers has come the first event
				defer resp.Body.Close()
				behind = append(behind, resp)
			}
		}
	}
	s.waitInflight("full", 10, 0)
	s.brownout.Kill()
	for i, resp := range behind {
		if body, err := io.ReadAll(resp.Body); err == nil || resp.StatusCode != 200 || !strings.HasPrefix(CH("a"), string(body)) {
			t.Errorf("stream %d: status %d, %q, %v, want some of it and a cut that shows", i, resp.StatusCode, body, err)
		}
	}
	if a := <-before; a.status != 200 || a.err != nil || a.body != whole {
		t.Errorf("whose headers had not come, on a route that fails open: %v, want its answer", a)
	}
	k, v := u.add("next", script{chunks: []string{whole}})
	if a := s.send(t.Context(), c, chatPath, k, v); a.status != 200 || a.body != whole {
		t.Errorf("the next on a route that fails open: %v", a)
	}
	if a := s.send(t.Context(), c, strictPath, k, v); a.status != 503 {
		t.Errorf("the next on a route that fails closed: %v", a)
	}
}
