package app

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// readCapture reads a captured request.
func readCapture(file string, stdin io.Reader) (engine.Case, error) {
	src, err := readExplained("--request", file, stdin)
	if err != nil {
		return engine.Case{}, err
	}
	c, err := parseCapture(src)
	if err != nil {
		return engine.Case{}, fmt.Errorf("--request %s%w", file, err)
	}
	return c, nil
}

// captureError is a line of a captured request that cannot be read. It does not repeat the line: that may be a credential.
type captureError struct {
	line    int
	problem string
}

func (e *captureError) Error() string { return fmt.Sprintf(":%d: %s", e.line, e.problem) }

// capture reads a captured request line by line.
type capture struct {
	engine.Case
	seen bool // the request line, or a pseudo header in its place
}

// parseCapture reads a request as HTTP/1.1 has it, the first request of what curl -v prints, or a list of headers with
// pseudo headers in the place of the request line. Line ends are LF or CRLF.
func parseCapture(src []byte) (engine.Case, error) {
	var c capture
	curl := byCurl(src)
	rest := bytes.TrimPrefix(src, []byte("\ufeff"))
	for n := 1; len(rest) > 0; n++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		text := strings.TrimSuffix(string(line), "\r")
		if curl {
			sent, ok := strings.CutPrefix(text, ">")
			if !ok {
				continue // notes of curl, and the answer
			}
			text = strings.TrimPrefix(sent, " ")
		}
		if text == "" && !c.seen {
			continue
		}
		if text == "" {
			if !curl && len(rest) > 0 {
				c.Body = c.decoded(rest)
			}
			break
		}
		if problem := c.line(text); problem != "" {
			return engine.Case{}, &captureError{n, problem}
		}
	}
	return c.done()
}

// byCurl says whether lines are marked as curl -v does it: those of a body are not looked at.
func byCurl(src []byte) bool {
	for line := range bytes.Lines(src) {
		if bytes.HasPrefix(line, []byte("> ")) {
			return true
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
	}
	return false
}

// done checks that all parts are there.
func (c *capture) done() (engine.Case, error) {
	if !c.seen {
		return engine.Case{}, &captureError{1, `there is no request (begin with a line such as "POST /v1/chat/completions HTTP/1.1")`}
	}
	if c.Request.Method == "" || c.Request.Path == "" {
		return engine.Case{}, &captureError{1, "no :method or no :path among the pseudo headers (add the missing one)"}
	}
	return c.Case, nil
}

// line reads a request line or a header, and returns what is wrong with it.
func (c *capture) line(text string) string {
	if strings.HasPrefix(text, ":") {
		return c.pseudo(text[1:])
	}
	if !c.seen {
		return c.start(text)
	}
	if text[0] == ' ' || text[0] == '\t' {
		return "a header over two lines (join them: RFC 9112 §5.2 takes folded lines for none)"
	}
	h, err := parseHeader(text)
	if err != nil {
		return "the header " + err.Error()
	}
	if h.Name == "host" {
		if c.Request.Host == "" {
			c.Request.Host = strings.ToLower(h.Value)
		}
		return ""
	}
	c.Request.Headers = append(c.Request.Headers, h)
	return ""
}

// start reads a request line.
func (c *capture) start(text string) string {
	method, rest, _ := strings.Cut(text, " ")
	target, version, _ := strings.Cut(rest, " ")
	if !isToken(method) || target == "" || version != "" && !strings.HasPrefix(version, "HTTP/") {
		return `not a request line (write one such as "POST /v1/chat/completions HTTP/1.1", or :method, :path and :authority)`
	}
	if !strings.HasPrefix(target, "/") && target != "*" {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" {
			return "the request's target is neither a path nor a URL (write a path that begins with a slash)"
		}
		c.Request.Host, target = strings.ToLower(u.Host), u.RequestURI()
	}
	c.Request.Method, c.Request.Path, c.seen = method, target, true
	return ""
}

// pseudo reads a pseudo header without its first colon.
func (c *capture) pseudo(text string) string {
	name, value, ok := strings.Cut(text, ":")
	if !ok {
		return `a pseudo header without a value (write one such as ":method: POST")`
	}
	value = strings.Trim(value, " \t")
	switch name {
	case "method":
		c.Request.Method = value
	case "path":
		c.Request.Path = value
	case "authority":
		c.Request.Host = strings.ToLower(value)
	case "scheme", "protocol":
	default:
		return `an unknown pseudo header (there are :method, :path, :authority, :scheme and :protocol)`
	}
	c.seen = true
	return ""
}

// decoded takes the chunks off a body that was captured with them.
func (c *capture) decoded(body []byte) []byte {
	for _, h := range c.Request.Headers {
		if h != (outcome.Header{Name: "transfer-encoding", Value: "chunked"}) {
			continue
		}
		whole, err := io.ReadAll(httputil.NewChunkedReader(bufio.NewReader(bytes.NewReader(body))))
		if err == nil {
			return whole
		}
	}
	return body
}
