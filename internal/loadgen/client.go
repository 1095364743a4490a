package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// verdict is how one attempt is counted.
type verdict int

const (
	admitted verdict = iota + 1
	shed
	other
)

// attempt is one request and its end.
type attempt struct {
	sent, ended time.Time
	verdict     verdict
	key         string // the reason of a shed; what happened of an other
	answer      string // status and source, such as "503 shed"; empty if there was no whole answer
	final       bool   // the answer says, or its class means, that another attempt is useless
}

// client is one user: it sends one request and retries it by the plan.
type client struct {
	g         *Generator
	number    int
	transport *http.Transport
}

// request builds attempt n, counted from 1.
func (c *client) request(n int) (*http.Request, error) {
	cfg := c.g.cfg
	// The context comes with the attempt.
	req, err := http.NewRequest(cfg.Method, c.g.target.String(), bytes.NewReader(cfg.Body))
	if err != nil {
		return nil, err
	}
	if len(cfg.Body) > 0 {
		req.Header.Set("content-type", "application/json")
	}
	if cfg.Latency != "" {
		req.Header.Set(stub.HeaderLatency, cfg.Latency)
	}
	req.Header.Set(stub.HeaderID, "client-"+strconv.Itoa(c.number))
	req.Header.Set(stub.HeaderWave, strconv.Itoa(n))
	for name, values := range cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	return req, nil
}

// play sends first and what the plan allows after it, and returns every attempt in order.
func (c *client) play(ctx context.Context, plan Plan, first *http.Request) []attempt {
	rng := rand.New(rand.NewPCG(c.g.cfg.Seed, uint64(c.number)))
	attempts := []attempt{c.try(ctx, first)}
	for n := range plan.Retries {
		last := attempts[len(attempts)-1]
		if last.verdict == admitted || last.final || !pause(ctx, plan.delay(n, rng)) {
			break
		}
		req, err := c.request(len(attempts) + 1)
		if err != nil {
			break // the first one was built from the same parts
		}
		attempts = append(attempts, c.try(ctx, req))
	}
	return attempts
}

// pause waits for d and reports whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *client) try(ctx context.Context, req *http.Request) attempt {
	ctx, cancel := context.WithTimeout(ctx, c.g.cfg.Timeout)
	defer cancel()
	a := attempt{sent: time.Now()}
	resp, err := c.transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		a.ended = time.Now()
		a.verdict, a.key = other, "transport: "+cause(err)
		return a
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerKept))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	a.ended = time.Now()
	if err != nil {
		a.verdict, a.key = other, "transport: "+strconv.Itoa(resp.StatusCode)+" cut: "+cause(err)
		return a
	}
	classify(&a, resp.StatusCode, resp.Header, body)
	return a
}

// classify decides what a whole answer is. The source header has the word; without it a shed is known by its body.
func classify(a *attempt, status int, h http.Header, body []byte) {
	source, reason := h.Get("x-brownout-source"), reasonOf(body)
	a.answer = join(status, source)
	refused := status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
	switch {
	case source == "shed" || source == "" && refused && reason != "":
		a.verdict, a.key = shed, reason
		if reason == "" {
			a.key = "unknown"
		}
	case status >= 200 && status < 300:
		a.verdict = admitted
	case reason != "":
		a.verdict, a.key = other, join(status, reason)
	default:
		a.verdict, a.key = other, a.answer
	}
	retryable := status >= 500 || status == http.StatusTooManyRequests
	a.final = !retryable || h.Get("x-should-retry") == "false"
}

func join(status int, word string) string {
	if word == "" {
		return strconv.Itoa(status)
	}
	return strconv.Itoa(status) + " " + word
}

// reasonOf reads the top-level reason of a JSON answer; longer ones than any real one are cut.
func reasonOf(body []byte) string {
	var answer struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return answer.Reason[:min(len(answer.Reason), 64)]
}

// cause strips addresses and nesting from a transport error, so that equal failures count as one.
func cause(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var oe *net.OpError
	if errors.As(err, &oe) {
		err = oe.Err
	}
	var se *os.SyscallError
	if errors.As(err, &se) {
		err = se.Err
	}
	return err.Error()
}
