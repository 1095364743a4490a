package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-brownout/brownout/internal/testkit"
)

// patience bounds every wait of these tests; it is reached only when something is broken.
const patience = 20 * time.Second

// narrow lets one run and one wait.
const narrow = "version: 1\ntiers: {full: {model: {concurrency: 1, queue: 1}}}\nroutes: [{name: chat, ladder: [full], stream: false}]\n"

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, ok, "never: "+what)
}

// logLines collects a log in JSON.
type logLines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// find is the first line with a message.
func (l *logLines) find(message string) (map[string]any, bool) {
	for line := range strings.Lines(l.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			return entry, true
		}
	}
	return nil, false
}

// shortDir is a directory whose name leaves room for a socket: t.TempDir carries the test's name, and a socket's path
// has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// serving is a `brownout serve` in this process.
type serving struct {
	t      *testing.T
	policy string // path
	log    logLines
	stop   context.CancelFunc // what SIGTERM does
	code   chan int

	listen, public, private string // addresses, as the log tells them
}

// startServe runs `brownout serve` on a socket and ports of its own; args are added and win over the defaults.
func startServe(t *testing.T, policy string, args ...string) *serving {
	t.Helper()
	return startServeAt(t, policyFile(t, policy), args...)
}

func startServeAt(t *testing.T, policy string, args ...string) *serving {
	t.Helper()
	all := []string{"serve", "--policy", policy, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json",
		"--grace", "0s"} // tests of the end give one
	if !strings.Contains(strings.Join(args, " "), "--listen") {
		all = append(all, "--listen", "unix:"+filepath.Join(shortDir(t), "s"))
	}
	if !strings.Contains(strings.Join(args, " "), "--seal") {
		all = append(all, "--seal", "none")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // ends when the test says so
	s := &serving{t: t, policy: policy, stop: stop, code: make(chan int, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.code <- Main(ctx, append(all, args...), Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &s.log})
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	eventually(t, "serving", func() bool {
		if _, ok := s.log.find("serving"); ok {
			return true
		}
		select {
		case code := <-s.code:
			t.Fatalf("exit %d:\n%s", code, s.log.String())
		default:
		}
		return false
	})
	entry, _ := s.log.find("serving")
	s.listen, s.public, s.private = entry["listen"].(string), entry["http"].(string), entry["admin"].(string)
	return s
}

// ended waits for the exit code.
func (s *serving) ended() int {
	s.t.Helper()
	select {
	case code := <-s.code:
		return code
	case <-time.After(patience):
		s.t.Fatalf("it does not end:\n%s", s.log.String())
		return -1
	}
}

// get is one HTTP request.
func (s *serving) get(addr, path string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Close = true
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func post(t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("POST %s: %s", url, r.Status)
	}
}

// metric is the value of one sample, named as the exposition format does; -1 when there is none.
func (s *serving) metric(sample string) float64 {
	s.t.Helper()
	_, page := s.get(s.public, "/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// state is what /debug/state shows.
func (s *serving) state() debugState {
	s.t.Helper()
	_, body := s.get(s.private, "/debug/state")
	var d debugState
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// dial connects as Envoy does; without credentials in clear.
func (s *serving) dial(creds ...credentials.TransportCredentials) *grpc.ClientConn {
	s.t.Helper()
	creds = append(creds, insecure.NewCredentials())
	target := s.listen
	if !strings.HasPrefix(target, "unix:") {
		target = "passthrough:///" + target
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds[0]))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	return conn
}

// exchange is the stream of one request.
type exchange struct {
	t *testing.T
	s pb.ExternalProcessor_ProcessClient
}

func open(t *testing.T, conn *grpc.ClientConn) *exchange {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := pb.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &exchange{t, s}
}

// request sends the headers of a chat request.
func (e *exchange) request(headers ...string) {
	e.t.Helper()
	hs := append([]string{":method", "POST", ":path", "/v1/chat/completions"}, headers...)
	e.send(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{RequestHeaders: &pb.HttpHeaders{Headers: headerMap(hs...)}}})
}

func (e *exchange) send(m *pb.ProcessingRequest) {
	e.t.Helper()
	if err := e.s.Send(m); err != nil {
		e.t.Fatal(err)
	}
}

// finish lets the upstream answer and the exchange end.
func (e *exchange) finish() {
	e.t.Helper()
	e.send(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &pb.HttpHeaders{Headers: headerMap(":status", "200"), EndOfStream: true}}})
	e.expect("answer upstream")
	if err := e.s.CloseSend(); err != nil {
		e.t.Fatal(err)
	}
	e.expect("end")
}

// next is the next reply in short; an extended timeout is not one.
func (e *exchange) next() string {
	for {
		m, err := e.s.Recv()
		if err != nil {
			return "end"
		}
		switch {
		case m.GetRequestHeaders() != nil && m.GetModeOverride() != nil:
			return "pass"
		case m.GetRequestHeaders() != nil:
			return "continue " + firstSet(m.GetRequestHeaders().GetResponse().GetHeaderMutation())
		case m.GetResponseHeaders() != nil:
			return "answer " + firstSet(m.GetResponseHeaders().GetResponse().GetHeaderMutation())
		case m.GetImmediateResponse() != nil:
			return fmt.Sprintf("%d %s", m.GetImmediateResponse().GetStatus().GetCode(), m.GetImmediateResponse().GetBody())
		}
	}
}

// firstSet is the value of the first header set: the tier of a request that goes on, the source of an answer.
func firstSet(m *pb.HeaderMutation) string {
	return string(m.GetSetHeaders()[0].GetHeader().GetRawValue())
}

func (e *exchange) expect(want string) {
	e.t.Helper()
	if got := e.next(); got != want {
		e.t.Errorf("reply %q, want %q", got, want)
	}
}

func headerMap(kv ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return m
}
