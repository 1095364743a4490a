package seal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// breaker is an upstream that breaks where the request says.
type breaker struct {
	conns *conns        // set before the first request
	read  chan struct{} // the client has all that was written, so that nothing is lost with the connection
}

func (b *breaker) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Header.Get("X-Before") != "" {
		b.breakNow(r)
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("X-Type"))
	w.Header().Set("Content-Encoding", r.Header.Get("X-Encoding"))
	if r.Header.Get("X-Kind") == "short" {
		w.Header().Set("Content-Length", "1000")
	}
	flush(w)
	pieces, _ := strconv.Atoi(r.Header.Get("X-Pieces")) // 0 if absent
	for i := range pieces {
		text(w, fmt.Sprintf("data: %d\n\n", i))
		flush(w)
	}
	b.breakNow(r)
}

func (b *breaker) breakNow(r *http.Request) {
	switch r.Header.Get("X-Kind") {
	case "short": // the end of the handler is the end of the body
	case "destroyed":
		<-b.read
		b.conns.destroy()
	default:
		panic(http.ErrAbortHandler)
	}
}

func startBreaker(t *testing.T, live func(string) bool) (*sealed, *breaker) {
	t.Helper()
	b := &breaker{read: make(chan struct{}, 1)}
	s := start(t, live, b.serve)
	b.conns = s.upstream
	return s, b
}

// doBroken reads pieces, tells the upstream that they have come, and then reads the rest.
func (b *breaker) doBroken(t *testing.T, c *http.Client, r *http.Request) got {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	pieces, _ := strconv.Atoi(r.Header.Get("X-Pieces")) // 0 if absent
	first := make([]byte, len(piecesOf(pieces)))
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatalf("before the cut: %v", err)
	}
	if r.Header.Get("X-Kind") == "destroyed" {
		b.read <- struct{}{}
	}
	g := read(res)
	g.body = string(first) + g.body
	return g
}

// piecesOf is the body of so many pieces.
func piecesOf(n int) string {
	body := ""
	for i := range n {
		body += fmt.Sprintf("data: %d\n\n", i)
	}
	return body
}

// broken asks for an answer that breaks; pairs are further headers.
func broken(t *testing.T, pairs ...string) *http.Request {
	t.Helper()
	r := request(t, t.Context())
	r.Header.Set("X-Type", "text/event-stream")
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	return r
}

func TestACutOfALiveAnswerBecomesAnEndWithTheTrailer(t *testing.T) {
	checkNoGoroutine(t)
	s, b := startBreaker(t, func(id string) bool { return id == "7" })
	want := map[End]int{}
	for _, kind := range []string{"reset", "short", "destroyed"} {
		for _, pieces := range []int{0, 1, 50} {
			g := b.doBroken(t, s.client, broken(t, "X-Kind", kind, "X-Pieces", strconv.Itoa(pieces)))
			if g.status != 200 || g.err != nil || g.body != piecesOf(pieces) || g.trailer.Get("x-brownout-cut") != "1" || len(g.trailer) != 1 {
				t.Errorf("%s after %d pieces: %+v", kind, pieces, g)
			}
			want[EndRepaired]++
		}
	}
	checkEnds(t, s.Seal, want)
}

func TestACutStaysACutWhereNoEndingCouldBeWritten(t *testing.T) {
	checkNoGoroutine(t)
	s, b := startBreaker(t, func(id string) bool { return id == "7" })
	want := map[End]int{}
	for what, pairs := range map[string][]string{
		"opaque body":                {"X-Type", "application/octet-stream"},
		"no type":                    {"X-Type", ""},
		"encoded body":               {"X-Encoding", "gzip"},
		"another process's session":  {"X-Brownout-Id", "8"},
		"no id":                      {"X-Brownout-Id", ""},
		"an id that is none":         {"X-Brownout-Id", "7x"},
		"an id of many digits":       {"X-Brownout-Id", "000000000000000000007"},
		"a short opaque body":        {"X-Type", "text/plain", "X-Kind", "short"},
		"a destroyed opaque body":    {"X-Type", "text/plain", "X-Kind", "destroyed"},
		"a short body of a stranger": {"X-Brownout-Id", "8", "X-Kind", "short"},
	} {
		if g := b.doBroken(t, s.client, broken(t, append([]string{"X-Pieces", "2"}, pairs...)...)); g.err == nil || g.trailer.Get("x-brownout-cut") != "" {
			t.Errorf("%s: a clean end: %+v", what, g)
		}
		want[EndCut]++
	}
	checkEnds(t, s.Seal, want)
}

func TestASessionThatEndedMeanwhileLeavesTheCut(t *testing.T) {
	var asked atomic.Int32
	s, b := startBreaker(t, func(string) bool { return asked.Add(1) == 1 }) // live at the header, gone at the cut
	if g := b.doBroken(t, s.client, broken(t, "X-Pieces", "2")); g.err == nil {
		t.Errorf("a clean end: %+v", g)
	}
	checkEnds(t, s.Seal, map[End]int{EndCut: 1})
}

func TestAnUpstreamThatBreaksBeforeItsHeadersIsUnreachable(t *testing.T) {
	checkNoGoroutine(t)
	s, b := startBreaker(t, everyone)
	for _, kind := range []string{"reset", "destroyed"} {
		if kind == "destroyed" {
			b.read <- struct{}{}
		}
		g := do(t, s.client, broken(t, "X-Before", "1", "X-Kind", kind))
		if g.status != 503 || g.err != nil || g.header.Get("x-brownout-seal") != "unreachable" || g.header.Get("x-brownout-inner") != "seal_inner_reset" {
			t.Errorf("%s: %+v", kind, g)
		}
	}
	checkEnds(t, s.Seal, map[End]int{EndUnreachable: 2})
}

func TestAnInnerListenerThatIsNotThereIsUnreachableAndComesBack(t *testing.T) {
	checkNoGoroutine(t)
	up := serveHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, "here") }))
	var down atomic.Bool
	down.Store(true)
	s, addr := startSeal(t, Options{Dial: func(ctx context.Context) (net.Conn, error) {
		if down.Load() {
			return nil, errors.New("no such file")
		}
		return dialer(up.Addr())(ctx)
	}})
	c := client(t, addr)
	if g := do(t, c, request(t, t.Context())); g.status != 503 || g.header.Get("x-brownout-seal") != "unreachable" || g.header.Get("x-brownout-inner") != "seal_dial_failed" {
		t.Errorf("while it is away: %+v", g)
	}
	down.Store(false)
	for range 3 { // and after each loss of every connection
		eventually(t, "no answer", func() bool { return do(t, c, request(t, t.Context())).body == "here" })
		up.destroy()
	}
	if st := s.Stats(); st.Ended[EndUnreachable] == 0 || st.Ended[EndWhole] != 3 {
		t.Errorf("%+v", st)
	}
}

func TestMarksOfTheInnerEnvoyTellRefusalsFromBreaks(t *testing.T) {
	s := start(t, everyone, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Brownout-Inner", r.Header.Get("X-Details"))
		w.WriteHeader(503)
	})
	for details, mark := range map[string]string{
		"upstream_reset_before_response_started{connection_failure}": "unreachable",
		"upstream_reset_before_response_started{overflow}":           "unreachable",
		"upstream_response_timeout":                                  "unreachable",
		"upstream_per_try_timeout":                                   "unreachable",
		"no_healthy_upstream":                                        "unreachable",
		"cluster_not_found":                                          "unreachable",
		"route_not_found":                                            "",
		"request_payload_too_large":                                  "",
		"":                                                           "",
	} {
		r := request(t, t.Context())
		r.Header.Set("X-Details", details)
		if g := do(t, s.client, r); g.status != 503 || g.header.Get("x-brownout-seal") != mark || g.header.Get("x-brownout-inner") != details {
			t.Errorf("%q: %+v", details, g)
		}
	}
}

func TestAnUpstreamCannotPlantTheSealsMarks(t *testing.T) {
	s := start(t, everyone, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Brownout-Seal", "unreachable")
		w.Header().Set("X-Brownout-Cut", "1")
		w.Header().Set("Trailer", "X-Brownout-Cut, X-Fine")
		w.WriteHeader(200)
		text(w, "whole")
		w.Header().Set("X-Fine", "yes")
		w.Header().Set(http.TrailerPrefix+"X-Brownout-Inner", "x")
		w.Header().Set(http.TrailerPrefix+"X-Brownout-Seal", "unreachable")
	})
	g := do(t, s.client, request(t, t.Context()))
	for _, h := range []http.Header{g.header, g.trailer} {
		for _, name := range []string{"x-brownout-seal", "x-brownout-inner", "x-brownout-cut"} {
			if h.Get(name) != "" {
				t.Errorf("%s: %q came through", name, h.Get(name))
			}
		}
	}
	if g.status != 200 || g.body != "whole" || g.trailer.Get("x-fine") != "yes" {
		t.Errorf("%+v", g)
	}
}

// patient is an upstream that answers until its request is cancelled, and says when.
type patient struct {
	started, stopped chan string // X-Name of the request
	flood            bool        // writes as fast as it can
	silent           bool        // sends no header
}

func newPatient() *patient {
	return &patient{started: make(chan string, 1000), stopped: make(chan string, 1000)}
}

func (p *patient) serve(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("X-Name")
	p.started <- name
	w.Header().Set("Content-Type", "text/event-stream")
	if !p.silent {
		text(w, "data: first\n\n")
		flush(w)
	}
	for p.flood && r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 32<<10)); err != nil {
			break
		}
	}
	<-r.Context().Done()
	p.stopped <- name
}

func TestAClientThatLeavesTakesItsUpstreamWithIt(t *testing.T) {
	checkNoGoroutine(t)
	for name, p := range map[string]*patient{"before headers": {silent: true}, "in mid-body": {}, "with a full window": {flood: true}} {
		t.Run(name, func(t *testing.T) {
			p.started, p.stopped = make(chan string, 1), make(chan string, 1)
			s := start(t, everyone, p.serve)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if res, err := s.client.Do(request(t, ctx)); err == nil {
					defer res.Body.Close()
					<-ctx.Done()
				}
			}()
			<-p.started
			leave()
			<-p.stopped
			<-gone
			checkEnds(t, s.Seal, map[End]int{EndClientGone: 1})
		})
	}
}

func TestCancelEndsTheUpstreamAtOnceAndSendsNothingMore(t *testing.T) {
	checkNoGoroutine(t)
	for name, p := range map[string]*patient{"before headers": {silent: true}, "in mid-body": {}, "when the client has stopped reading": {flood: true}} {
		t.Run(name, func(t *testing.T) {
			p.started, p.stopped = make(chan string, 1), make(chan string, 1)
			s := start(t, everyone, p.serve)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ended := make(chan error, 1)
			go func() {
				res, err := slowClient(t, s).Do(request(t, ctx))
				if err == nil {
					defer res.Body.Close()
					<-ctx.Done()
					_, err = io.Copy(io.Discard, res.Body)
				}
				ended <- err
			}()
			<-p.started
			if s.Cancel("8") {
				t.Error("an id nobody has was cancelled")
			}
			if !s.Cancel("7") {
				t.Error("no request of id 7")
			}
			<-p.stopped // while the client still holds its stream
			if st := s.Stats(); st.InFlight != 1 || len(ended) > 0 {
				t.Errorf("the stream to the client did not stay open: %+v", st)
			}
			leave() // what Envoy does behind the session's ending
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the client got an end of the seal's: %v", err)
			}
			checkEnds(t, s.Seal, map[End]int{EndCancelled: 1})
			if s.Cancel("7") {
				t.Error("an ended request was cancelled")
			}
		})
	}
}

func TestFinishEndsACompleteAnswerCleanlyAndItsUpstreamAtOnce(t *testing.T) {
	checkNoGoroutine(t)
	p := newPatient()
	s := start(t, everyone, p.serve)
	res, err := s.client.Do(request(t, t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("data: first\n\n"))
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	if s.Finish("8") || !s.Finish("7") {
		t.Error("the wrong request was finished")
	}
	if g := read(res); g.body != "" || g.err != nil || len(g.trailer) != 0 {
		t.Errorf("after Finish: %+v, want a clean end without a trailer", g)
	}
	<-p.started
	<-p.stopped
	checkEnds(t, s.Seal, map[End]int{EndWhole: 1})
	if s.Finish("7") {
		t.Error("an ended request was finished")
	}
}

func TestACutThatIsPassedOnIsToldFirst(t *testing.T) {
	told := make(chan string, 2)
	b := &breaker{}
	up := serveHTTP2(t, http.HandlerFunc(b.serve))
	s, addr := startSeal(t, Options{Dial: dialer(up.Addr()), Live: everyone, Cut: func(id string) { told <- id }})
	c := client(t, addr)
	if g := do(t, c, broken(t, "X-Type", "text/plain", "X-Pieces", "1")); g.err == nil {
		t.Errorf("a clean end: %+v", g)
	}
	if id := <-told; id != "7" {
		t.Errorf("told of %q", id)
	}
	do(t, c, broken(t, "X-Pieces", "1")) // repaired: nothing to tell
	checkEnds(t, s, map[End]int{EndCut: 1, EndRepaired: 1})
	if len(told) > 0 {
		t.Errorf("told of %q, which was repaired", <-told)
	}
}

func TestRequestsOfOneIDAreCancelledTogether(t *testing.T) {
	p := newPatient()
	s := start(t, everyone, p.serve)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			if res, err := s.client.Do(request(t, ctx)); err == nil {
				defer res.Body.Close()
				<-ctx.Done()
			}
		})
	}
	<-p.started
	<-p.started
	if !s.Cancel("7") {
		t.Error("nothing cancelled")
	}
	<-p.stopped
	<-p.stopped
	leave()
	clients.Wait()
	checkEnds(t, s.Seal, map[End]int{EndCancelled: 2})
}

func TestManyStreamsAtOnceEndEachInItsWay(t *testing.T) {
	checkNoGoroutine(t)
	const streams, frames = 500, 40
	s := start(t, everyone, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		n, _ := strconv.Atoi(r.Header.Get("X-Name"))
		for i := range frames {
			text(w, fmt.Sprintf("data: %d of %d\n\n", i, n))
			flush(w)
			if i == frames/2 && n%10 == 1 {
				panic(http.ErrAbortHandler)
			}
			if i == frames/2 && n%10 == 2 {
				<-r.Context().Done()
				return
			}
		}
	})
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := request(t, ctx)
			r.Header.Set("X-Name", strconv.Itoa(i))
			r.Header.Set("X-Brownout-Id", strconv.Itoa(i+1))
			res, err := s.client.Do(r)
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
				return
			}
			defer res.Body.Close()
			if i%10 == 2 {
				_, _ = io.ReadFull(res.Body, make([]byte, 10))
				return // leaves
			}
			g := read(res)
			if cut := g.trailer.Get("x-brownout-cut") == "1"; g.err != nil || cut != (i%10 == 1) {
				t.Errorf("stream %d: cut %v, %v", i, cut, g.err)
			}
		})
	}
	all.Wait()
	checkEnds(t, s.Seal, map[End]int{EndRepaired: streams / 10, EndClientGone: streams / 10, EndWhole: streams - 2*streams/10})
}

func TestThousandsOfStreamsFindConnections(t *testing.T) {
	checkNoGoroutine(t)
	const streams = 3000
	p := newPatient()
	p.started, p.stopped = make(chan string, streams), make(chan string, streams)
	s := start(t, everyone, p.serve)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			if res, err := s.client.Do(request(t, ctx)); err == nil {
				defer res.Body.Close()
				<-ctx.Done()
			}
		})
	}
	for range streams {
		<-p.started
	}
	if st := s.Stats(); st.InFlight != streams || st.Connections > streams/streamsPerConn+1 {
		t.Errorf("%+v", st)
	}
	leave()
	all.Wait()
	checkEnds(t, s.Seal, map[End]int{EndClientGone: streams})
	if n := s.Stats().Connections; n > 1 {
		t.Errorf("%d idle connections are kept", n)
	}
}

func TestAConnectionTakesABoundedNumberOfRequests(t *testing.T) {
	s := start(t, nil, func(w http.ResponseWriter, _ *http.Request) { text(w, "x") })
	for range 3*requestsPerConn + 1 {
		do(t, s.client, request(t, t.Context()))
	}
	if n := s.upstream.count(); n != 4 {
		t.Errorf("%d requests over %d connections, want 4", 3*requestsPerConn+1, n)
	}
}

func TestShutdownLetsAnswersEndAndCutsWhatIsLeft(t *testing.T) {
	checkNoGoroutine(t)
	more := make(chan struct{})
	l := serveHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flush(w)
		select {
		case <-more:
		case <-r.Context().Done():
		}
		text(w, "end")
	}))
	for _, patient := range []bool{true, false} {
		s, sock, done := New(Options{Dial: dialer(l.Addr()), Live: everyone}), unixListener(t), make(chan error, 1)
		go func() { done <- s.Serve(sock) }()
		res, err := client(t, sock.Addr()).Do(request(t, t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		down := make(chan error, 1)
		go func() { down <- s.Shutdown(ctx) }()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if patient {
			more <- struct{}{}
		} else {
			giveUp()
		}
		g := read(res)
		if patient && (g.body != "end" || g.err != nil) || !patient && g.err == nil {
			t.Errorf("patient %v: %+v", patient, g)
		}
		if err := <-down; (err == nil) != patient {
			t.Errorf("patient %v: Shutdown: %v", patient, err)
		}
	}
}

func TestEveryEndHasAName(t *testing.T) {
	var seen []string
	for e := range numEnds + 1 {
		if e > 0 && e < numEnds && (e.String() == "" || slices.Contains(seen, e.String())) {
			t.Errorf("end %d is called %q", e, e)
		}
		seen = append(seen, e.String())
	}
	if s := numEnds.String(); s != "unknown" {
		t.Errorf("no end is called %q", s)
	}
}

func TestATunnelIsRefused(t *testing.T) {
	s := start(t, everyone, func(http.ResponseWriter, *http.Request) { t.Error("a tunnel reached the upstream") })
	r := request(t, t.Context())
	r.Method = http.MethodConnect
	if g := do(t, s.client, r); g.status != http.StatusNotImplemented {
		t.Errorf("%+v", g)
	}
}

func TestObserverHearsEveryEnd(t *testing.T) {
	heard := make(chan End, 2)
	up := serveHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, "x") }))
	_, addr := startSeal(t, Options{Dial: dialer(up.Addr()), Observer: func(e End) { heard <- e }})
	do(t, client(t, addr), request(t, t.Context()))
	if e := <-heard; e != EndWhole {
		t.Errorf("heard %s", e)
	}
}
