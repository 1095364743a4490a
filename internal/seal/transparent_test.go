package seal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exchanged is all an upstream and a client can tell of an exchange, without what each connection adds.
type exchanged struct {
	Method, URI, Host string
	Length            int64
	Header, Trailer   http.Header
	Body              string

	Status                        int
	AnswerLength                  int64
	AnswerHeader, AnswerTrailer   http.Header
	AnswerBody                    string
	Informational                 []int
	InformationalLink, AnswerNote string
}

// script is one exchange: what is sent, and what is answered.
type script struct {
	name    string
	request func(r *http.Request)
	answer  http.HandlerFunc
}

// observe runs a script between c and an upstream that records what it gets. record is set by the upstream.
func (s script) observe(t *testing.T, c *http.Client, record *exchanged) exchanged {
	t.Helper()
	*record = exchanged{}
	var mu sync.Mutex // guards the informational answers, which come from the transport's goroutine
	var codes []int
	var link string
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		mu.Lock()
		defer mu.Unlock()
		codes, link = append(codes, code), h.Get("Link")
		return nil
	}}
	r := request(t, httptrace.WithClientTrace(t.Context(), trace))
	if s.request != nil {
		s.request(r)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	announcedTrailer := fmt.Sprint(announced(res.Trailer))
	g := read(res)
	if g.err != nil {
		g.body += g.err.Error()
	}
	if g.header.Get("Date") != "" {
		g.header.Set("Date", "some date") // the second may change between two exchanges
	}
	mu.Lock()
	defer mu.Unlock()
	e := *record
	e.Status, e.AnswerLength, e.AnswerHeader, e.AnswerTrailer, e.AnswerBody = g.status, res.ContentLength, g.header, g.trailer, g.body
	e.Informational, e.InformationalLink, e.AnswerNote = codes, link, announcedTrailer
	return e
}

// recorded wraps an upstream's handler.
func recorded(record *exchanged, answer func() http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = fmt.Append(body, err)
		}
		*record = exchanged{Method: r.Method, URI: r.RequestURI, Host: r.Host, Length: r.ContentLength, Header: r.Header,
			Trailer: r.Trailer, Body: string(body)}
		answer()(w, r)
	}
}

// both runs a script past the seal and through it and compares.
type both struct {
	direct, sealed *http.Client
	record         exchanged
	script         script
}

func newBoth(t *testing.T, live func(string) bool) *both {
	b := &both{}
	s := start(t, live, recorded(&b.record, func() http.HandlerFunc { return b.script.answer }))
	b.sealed, b.direct = s.client, client(t, s.upstream.Addr())
	return b
}

func (b *both) compare(t *testing.T, s script) {
	t.Helper()
	if s.answer == nil {
		s.answer = func(http.ResponseWriter, *http.Request) {}
	}
	b.script = s
	want := s.observe(t, b.direct, &b.record)
	got := s.observe(t, b.sealed, &b.record)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: direct and sealed differ (-direct +sealed):\n%s", s.name, d)
	}
}

func text(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, s) } // a client that has gone shows at the client

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func transparencyTable() []script {
	path := func(raw string) func(*http.Request) {
		return func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Host: "model.test", Opaque: raw} }
	}
	body := func(s string, known bool) func(*http.Request) {
		return func(r *http.Request) {
			r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(strings.NewReader(s)), -1
			if known {
				r.ContentLength = int64(len(s))
			}
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	return []script{
		{name: "plain"},
		{name: "escaped path", request: path("/a%2Fb/%7e/caf%c3%a9?q=%zz&x=a+b;c")},
		{name: "path with characters url would escape", request: path(`/a|b^{c}"<>?a|b`)},
		{name: "dots and slashes", request: path("/a//b/./../c/")},
		{name: "empty query", request: path("/a?")},
		{name: "methods", request: func(r *http.Request) { r.Method = "PURGE" }},
		{name: "lower-case method", request: func(r *http.Request) { r.Method = "get" }},
		{name: "host with port", request: func(r *http.Request) { r.Host = "Model.TEST:8443" }},
		{name: "no user agent", request: func(r *http.Request) { r.Header["User-Agent"] = []string{""} }},
		{name: "accept-encoding", request: func(r *http.Request) { r.Header.Set("Accept-Encoding", "br, gzip") }},
		{name: "te trailers", request: func(r *http.Request) { r.Header.Set("Te", "trailers") }},
		{name: "many values", request: func(r *http.Request) { r.Header["X-A"] = []string{"2", "1", "", "1, 3", "é\xff"} }},
		{name: "body of known length", request: body("hello", true)},
		{name: "body of unknown length", request: body("hello", false)},
		{name: "empty POST", request: func(r *http.Request) { r.Method = "POST" }},
		{name: "HEAD", request: func(r *http.Request) { r.Method = "HEAD" }, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1234")
			w.Header().Set("Content-Type", "text/event-stream")
		}},
		{name: "OPTIONS *", request: func(r *http.Request) { r.Method = "OPTIONS"; path("*")(r) }},
		{name: "204", answer: status(204)},
		{name: "304 with a length", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(304)
		}},
		{name: "302", answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/x"); w.WriteHeader(302) }},
		{name: "418 with text", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); text(w, "teapot") }},
		{name: "599", answer: status(599)},
		{name: "no date, type or length", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
			text(w, "{}")
			flush(w)
		}},
		{name: "ends with its header", answer: func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Length"] = nil }},
		{name: "content length 0", answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") }},
		{name: "set-cookie twice", answer: func(w http.ResponseWriter, _ *http.Request) { w.Header()["Set-Cookie"] = []string{"b=1", "a=2"} }},
		{name: "announced trailers", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-Other, X-Missing")
			text(w, "body")
			w.Header().Set("X-Sum", "1")
			w.Header()["X-Other"] = []string{"2", "3"}
		}},
		{name: "trailers nobody announced", answer: func(w http.ResponseWriter, _ *http.Request) {
			text(w, "body")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}},
		{name: "trailers without a body", answer: func(w http.ResponseWriter, _ *http.Request) {
			flush(w)
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}},
		{name: "trailers of the request", request: func(r *http.Request) {
			body("hello", false)(r)
			r.Trailer = http.Header{"X-Sum": {"5"}, "X-More": {"a", "b"}}
		}},
		{name: "early hints", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a>; rel=preload")
			w.WriteHeader(103)
			w.WriteHeader(103)
			w.Header().Del("Link")
			text(w, "done")
		}},
	}
}

func TestExchangesLookTheSamePastTheSealAndThroughIt(t *testing.T) {
	checkNoGoroutine(t)
	for name, live := range map[string]func(string) bool{"live": everyone, "not live": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBoth(t, live)
			for _, s := range transparencyTable() {
				b.compare(t, s)
			}
		})
	}
}

// TestRandomExchangesLookTheSame is the table's property for what nobody thought of.
func TestRandomExchangesLookTheSame(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b := newBoth(t, everyone)
	for i := range 150 {
		b.compare(t, randomScript(rnd, i))
	}
}

func randomHeader(rnd *rand.Rand, prefix string) http.Header {
	h := make(http.Header)
	for range rnd.IntN(6) {
		name := http.CanonicalHeaderKey(prefix + string(rune('a'+rnd.IntN(26))) + "-" + strconv.Itoa(rnd.IntN(3)))
		value := make([]byte, rnd.IntN(40))
		for i := range value {
			value[i] = byte('!' + rnd.IntN(94))
		}
		h[name] = append(h[name], string(value))
	}
	return h
}

func randomBody(rnd *rand.Rand) []byte {
	b := make([]byte, rnd.IntN(1<<rnd.IntN(18)))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func randomScript(rnd *rand.Rand, i int) script {
	sent, header, trailer := randomBody(rnd), randomHeader(rnd, "x-q"), randomHeader(rnd, "x-u")
	answered, answerHeader, answerTrailer := randomBody(rnd), randomHeader(rnd, "x-r"), randomHeader(rnd, "x-t")
	pieces, known, opaqueType := 1+rnd.IntN(5), rnd.IntN(2) == 0, rnd.IntN(2) == 0
	return script{
		name: fmt.Sprintf("exchange %d", i),
		request: func(r *http.Request) {
			r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(bytes.NewReader(sent)), -1
			if known {
				r.ContentLength = int64(len(sent))
			}
			maps.Copy(r.Header, header)
			if len(sent) > 0 {
				r.Trailer = trailer.Clone()
			}
		},
		answer: func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), answerHeader)
			if opaqueType { // of others the length may be dropped
				w.Header().Set("Content-Type", "application/octet-stream")
				w.Header().Set("Content-Length", strconv.Itoa(len(answered)))
			}
			for p := range pieces {
				_, _ = w.Write(answered[p*len(answered)/pieces : (p+1)*len(answered)/pieces])
				flush(w)
			}
			for name, values := range answerTrailer {
				w.Header()[http.TrailerPrefix+name] = values
			}
		},
	}
}

func TestContentLengthGoesOnlyWhereAnEndingMayBeWritten(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("X-Type"))
		w.Header().Set("Content-Encoding", r.Header.Get("X-Encoding"))
		w.Header().Set("Content-Length", "2")
		text(w, "{}")
	}
	for _, live := range []bool{true, false} {
		s := start(t, func(string) bool { return live }, answer)
		for _, c := range []struct {
			contentType, encoding string
			repairable            bool
		}{
			{"text/event-stream", "", true}, {"text/event-stream; charset=utf-8", "", true}, {"Text/Event-Stream", "", true},
			{"application/x-ndjson", "", true}, {"application/jsonl", "", true}, {"application/json", "identity", true},
			{"application/problem+json", "", true}, {"application/json", "gzip", false}, {"text/event-stream", "br", false},
			{"text/plain", "", false}, {"", "", false}, {"application/jsonx", "", false}, {"multipart/mixed; boundary=a", "", false},
		} {
			r := request(t, t.Context())
			r.Header.Set("X-Type", c.contentType)
			r.Header.Set("X-Encoding", c.encoding)
			want := "2"
			if live && c.repairable {
				want = ""
			}
			if g := do(t, s.client, r); g.header.Get("Content-Length") != want || g.body != "{}" || g.err != nil {
				t.Errorf("live %v, type %q, encoding %q: length %q, want %q; %v", live, c.contentType, c.encoding, g.header.Get("Content-Length"), want, g)
			}
		}
	}
}

func TestEachPieceComesThroughBeforeTheNextIsWritten(t *testing.T) {
	next := make(chan struct{})
	s := start(t, everyone, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w)
		for i := range 20 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			text(w, fmt.Sprintf("data: %d\n\n", i))
			flush(w)
		}
	})
	res, err := s.client.Do(request(t, t.Context())) // returns: headers do not wait for a body
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 20 {
		want := fmt.Sprintf("data: %d\n\n", i)
		buf := make([]byte, len(want))
		next <- struct{}{}
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != want {
			t.Fatalf("piece %d: %q, %v", i, buf, err)
		}
	}
}

func TestBothBodiesFlowAtOnce(t *testing.T) {
	s := start(t, nil, func(w http.ResponseWriter, r *http.Request) {
		flush(w)
		buf := make([]byte, 5)
		for {
			n, err := io.ReadFull(r.Body, buf)
			if err != nil {
				return
			}
			_, _ = w.Write(bytes.ToUpper(buf[:n]))
			flush(w)
		}
	})
	in, out := io.Pipe()
	r := request(t, t.Context())
	r.Method, r.Body, r.ContentLength = "POST", in, -1
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 10 {
		word := fmt.Sprintf("ping%d", i)
		text(writer{out}, word)
		buf := make([]byte, len(word))
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != strings.ToUpper(word) {
			t.Fatalf("%q came back as %q, %v", word, buf, err)
		}
	}
	_ = out.Close() // the end of the upload
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// writer lets text write to a pipe.
type writer struct{ io.Writer }

func (writer) Header() http.Header { return nil }
func (writer) WriteHeader(int)     {}

func TestLargeBodiesGoBothWays(t *testing.T) {
	big := make([]byte, 5<<20)
	for i := range big {
		big[i] = byte(i >> 8)
	}
	s := start(t, nil, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, big) {
			w.WriteHeader(500)
			return
		}
		_, _ = w.Write(big)
	})
	r := request(t, t.Context())
	r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(bytes.NewReader(big)), int64(len(big))
	if g := do(t, s.client, r); g.status != 200 || g.body != string(big) || g.err != nil {
		t.Errorf("status %d, %d bytes, %v", g.status, len(g.body), g.err)
	}
}

func TestAStoppedReaderHoldsNobodyUpAndItsUpstreamStops(t *testing.T) {
	var written sync.Map // id → bytes
	s := start(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Flood") == "" {
			text(w, "quick")
			return
		}
		total := 0
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 16<<10))
			if err != nil {
				return
			}
			total += n
			written.Store(r.Header.Get("X-Flood"), total)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const floods = 40
	slow := slowClient(t, s)
	for i := range floods {
		r := request(t, ctx)
		r.Header.Set("X-Flood", strconv.Itoa(i))
		res, err := slow.Do(r) // and nobody reads it
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	last, still := 0, 0
	eventually(t, "the floods never stopped", func() bool {
		sum := 0
		written.Range(func(_, v any) bool { sum += v.(int); return true })
		if still++; sum != last || sum == 0 {
			last, still = sum, 0
		}
		return still > 20 // looks in a row
	})
	if per := last / floods; per > 512<<10 {
		t.Errorf("%d bytes of each answer nobody reads are on their way", per)
	}
	for range 20 {
		if g := do(t, slow, request(t, t.Context())); g.body != "quick" {
			t.Errorf("beside the floods: %+v", g)
		}
	}
}

// slowClient has the windows Envoy is configured with, so that what it buffers itself stays small.
func slowClient(t *testing.T, s *sealed) *http.Client {
	c := client(t, s.sealAddr)
	c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	return c
}
