package stub

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// setHeader sets a header under the name as written: HTTP/1.1 then shows it in lower case, as the article's server does.
func setHeader(h http.Header, name, value string) { h[name] = []string{value} }

// answer plays a.mode, which is not ModeThrottle, on w. An error means that the answer must not look whole.
func (s *Stub) answer(w http.ResponseWriter, c *call, a ask) error {
	if err := c.acquire(); err != nil {
		return err
	}
	latency := a.latency
	if a.mode == ModeSlow {
		latency = SlowLatency
	}
	if err := c.work(latency); err != nil {
		return err
	}
	switch a.mode {
	case ModeTruncate:
		return truncate(w, c)
	case ModeStream:
		return streamAnswer(w, c, a)
	default:
		c.complete()
		return finish(w, a)
	}
}

// finish writes the answers that are sent in one piece.
func finish(w http.ResponseWriter, a ask) error {
	switch a.mode {
	case ModeError:
		return writeBody(w, a, http.StatusInternalServerError, bodyError)
	case ModeEmpty:
		return writeEither(w, a, http.StatusOK, bodyEmpty, emptyText())
	case ModeRefuse:
		return writeEither(w, a, http.StatusOK, bodyRefuse, refuseText())
	case ModeEvict:
		return writeEither(w, a, http.StatusServiceUnavailable, bodyEvict, evictText())
	}
	if a.echo {
		return writeEcho(w, a, http.StatusOK)
	}
	w.Header()["Content-Type"] = nil // the article's server sends none; keep net/http from guessing one
	_, err := io.WriteString(w, bodyOK)
	return err
}

// writeEither answers with a stream if the request asked for one, else with status and a JSON body.
func writeEither(w http.ResponseWriter, a ask, status int, body, sse string) error {
	if !a.body.stream && !strings.Contains(a.r.Header.Get("accept"), typeSSE) {
		return writeBody(w, a, status, body)
	}
	startSSE(w)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, sse) // after the flush it goes without a content-length, as streams do
	return err
}

func writeBody(w http.ResponseWriter, a ask, status int, body string) error {
	if a.echo {
		return writeEcho(w, a, status)
	}
	startType(w, typeJSON)
	w.WriteHeader(status)
	_, err := io.WriteString(w, body)
	return err
}

func startType(w http.ResponseWriter, contentType string) {
	w.Header()["Content-Type"] = nil
	setHeader(w.Header(), "content-type", contentType)
}

func startSSE(w http.ResponseWriter) {
	startType(w, typeSSE)
	w.WriteHeader(http.StatusOK)
}

// truncate sends half an answer and then an error, which makes the caller destroy the socket or reset the stream.
func truncate(w http.ResponseWriter, c *call) error {
	startSSE(w)
	if err := c.push(w, bodyTruncate); err != nil {
		return err
	}
	if err := c.work(TruncateHold); err != nil {
		return err
	}
	c.complete()
	return errTruncated
}

// streamAnswer sends a.chunks content chunks. The slot is held until the last of them.
func streamAnswer(w http.ResponseWriter, c *call, a ask) error {
	startSSE(w)
	if err := c.push(w, roleChunk()); err != nil {
		return err
	}
	for i := range a.chunks {
		if i > 0 {
			if err := c.work(a.gap); err != nil {
				return err
			}
		}
		if err := c.push(w, contentChunk(i)); err != nil {
			return err
		}
	}
	c.complete()
	_, err := io.WriteString(w, finishChunk("stop")+doneEvent)
	return err
}

// push writes and sends the bytes at once. With KeepRunning the work goes on when nobody reads.
func (c *call) push(w http.ResponseWriter, text string) error {
	_, err := io.WriteString(w, text)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if c.s.cfg.KeepRunning {
		return nil
	}
	return err
}

// echo is the request as the stub saw it.
type echo struct {
	Mode       Mode        `json:"mode"`
	Method     string      `json:"method"`
	Path       string      `json:"path"` // with query
	Host       string      `json:"host"`
	Proto      string      `json:"proto"`
	Headers    http.Header `json:"headers"` // names in lower case
	BodyBytes  int64       `json:"body_bytes"`
	BodySHA256 string      `json:"body_sha256"`
}

func writeEcho(w http.ResponseWriter, a ask, status int) error {
	headers := make(http.Header, len(a.r.Header))
	for name, values := range a.r.Header {
		headers[strings.ToLower(name)] = values
	}
	writeJSON(w, status, echo{
		Mode: a.mode, Method: a.r.Method, Path: a.r.URL.RequestURI(), Host: a.r.Host, Proto: a.r.Proto,
		Headers: headers, BodyBytes: a.body.bytes, BodySHA256: a.body.sha256,
	})
	return nil
}

// problem is the body of an answer about the stub itself.
type problem struct {
	Error string `json:"error"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	startType(w, typeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // a reader that left needs no answer
}
