package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ending is how a scripted answer ends.
type ending int

const (
	clean    ending = iota // the body ends as it should
	cut                    // the connection closes in the middle of a chunked body; HTTP/2: RST_STREAM
	short                  // content-length promises more than comes; HTTP/2: RST_STREAM
	destroy                // the socket is reset
	hang                   // nothing more comes; the client must leave
	trailers               // the body ends with trailers
)

func (e ending) String() string {
	return [...]string{"clean", "cut", "short", "destroy", "hang", "trailers"}[e]
}

// script is what a scripted upstream answers.
type script struct {
	status int               // default 200
	header map[string]string // default content-type: text/event-stream
	chunks []string          // written and flushed one by one
	gap    time.Duration     // between them
	wait   time.Duration     // before the headers
	think  time.Duration     // between the headers and the first chunk
	rest   time.Duration     // before the connection breaks; default arrive
	end    ending
}

// scripted is an upstream that answers what a request's x-script header names, over HTTP/1.1 and HTTP/2.
type scripted struct {
	*httptest.Server
	t *testing.T

	mu        sync.Mutex
	scripts   map[string]script
	calls     map[string]int
	cancelled map[string]int       // calls whose client left before their end
	left      map[string]time.Time // when the last of them did
	seen      map[string]http.Header
	got       map[string]string // the last request's body
}

func startScripted(t *testing.T) *scripted {
	t.Helper()
	u := &scripted{t: t, scripts: map[string]script{}, calls: map[string]int{}, cancelled: map[string]int{}, left: map[string]time.Time{}, seen: map[string]http.Header{}, got: map[string]string{}}
	u.Server = httptest.NewUnstartedServer(u)
	u.Config.Protocols = new(http.Protocols)
	u.Config.Protocols.SetHTTP1(true)
	u.Config.Protocols.SetUnencryptedHTTP2(true)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

// add names a script and returns the header that asks for it.
func (u *scripted) add(name string, s script) (header, value string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scripts[name] = s
	return "x-script", name
}

func (u *scripted) count(m map[string]int, name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return m[name]
}

// lastBody is the body of the last request for a script.
func (u *scripted) lastBody(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.got[name]
}

// seenHeader is a header of the last request for a script.
func (u *scripted) seenHeader(name, header string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[name].Get(header)
}

func (u *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("x-script")
	body, _ := io.ReadAll(r.Body) // a caller that leaves in the middle shows soon enough
	u.mu.Lock()
	u.got[name] = string(body)
	s, ok := u.scripts[name]
	u.calls[name]++
	u.seen[name] = r.Header.Clone()
	u.mu.Unlock()
	if !ok {
		http.Error(w, "no such script", http.StatusNotFound)
		return
	}
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.header == nil {
		s.header = map[string]string{"content-type": "text/event-stream"}
	}
	if s.wait > 0 && !u.sleep(r, name, s.wait) {
		return
	}
	if r.ProtoMajor == 1 && s.end != clean && s.end != hang && s.end != trailers {
		u.serveRaw(w, s)
		return
	}
	u.serve(w, r, name, s)
}

func (u *scripted) serve(w http.ResponseWriter, r *http.Request, name string, s script) {
	for k, v := range s.header {
		w.Header().Set(k, v)
	}
	if s.end == trailers {
		w.Header().Set("Trailer", "x-upstream-trailer")
	}
	w.WriteHeader(s.status)
	flush := http.NewResponseController(w).Flush
	if len(s.chunks) == 0 && s.header["content-length"] == "0" && s.think == 0 {
		return // the headers are the end
	}
	if flush() != nil {
		return
	}
	for i, c := range s.chunks {
		if d := s.before(i); d > 0 && !u.sleep(r, name, d) {
			return
		}
		if _, err := w.Write([]byte(c)); err != nil || flush() != nil {
			u.note(name)
			return
		}
	}
	switch s.end {
	case hang:
		<-r.Context().Done()
		u.note(name)
	case trailers:
		w.Header().Set("x-upstream-trailer", "yes")
	case cut, short, destroy:
		pause(max(s.rest, arrive))
		panic(http.ErrAbortHandler)
	}
}

// before is the pause before a chunk.
func (s script) before(i int) time.Duration {
	if i == 0 {
		return s.think
	}
	return s.gap
}

// sleep pauses; false: the client has left.
func (u *scripted) sleep(r *http.Request, name string, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		u.note(name)
		return false
	}
}

func (u *scripted) note(name string) {
	u.mu.Lock()
	u.cancelled[name]++
	u.left[name] = time.Now()
	u.mu.Unlock()
}

// arrive is the time in which what has been written arrives, before the connection breaks.
const arrive = 20 * time.Millisecond

func pause(d time.Duration) { <-time.NewTimer(d).C }

// serveRaw writes an HTTP/1.1 answer by hand and breaks it off.
func (u *scripted) serveRaw(w http.ResponseWriter, s script) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		u.t.Errorf("hijack: %v", err)
		return
	}
	defer conn.Close()
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", s.status, http.StatusText(s.status))
	for k, v := range s.header {
		fmt.Fprintf(&head, "%s: %s\r\n", k, v)
	}
	if s.end == short {
		fmt.Fprintf(&head, "content-length: %d\r\n\r\n", len(strings.Join(s.chunks, ""))+100)
	} else {
		head.WriteString("transfer-encoding: chunked\r\n\r\n")
	}
	if _, err := conn.Write(head.Bytes()); err != nil {
		return
	}
	for i, c := range s.chunks {
		if d := s.before(i); d > 0 {
			pause(d)
		}
		if s.end != short {
			c = strconv.FormatInt(int64(len(c)), 16) + "\r\n" + c + "\r\n"
		}
		if _, err := conn.Write([]byte(c)); err != nil {
			return
		}
	}
	pause(max(s.rest, arrive))
	if tcp, ok := conn.(*net.TCPConn); ok && s.end == destroy {
		_ = tcp.SetLinger(0) // then Close sends RST
	}
}
