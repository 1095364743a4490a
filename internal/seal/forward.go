package seal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
)

// Details of the seal's own 503, in the place of Envoy's.
const (
	detailDial  = "seal_dial_failed"  // the inner listener does not accept connections
	detailReset = "seal_inner_reset"  // it accepted the request and reset it
	detailSpeak = "seal_inner_garble" // its answer is not one HTTP allows
)

// serve handles one request of Envoy's.
func (s *Seal) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		http.Error(w, "the seal opens no tunnels", http.StatusNotImplemented)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	x := &exchange{id: requestID(r.Header[http.CanonicalHeaderKey(envoy.SealIDHeader)]), cancel: cancel}
	if !s.registry.add(x) {
		panic(http.ErrAbortHandler) // the seal is closing
	}
	defer s.registry.remove(x)
	f := &forwarding{Seal: s, w: w, r: r, id: x.id, x: x}
	end := f.run(ctx)
	s.counts[end].Add(1)
	s.ended(end)
	s.log.Debug("sealed request", slog.String("id", x.id), slog.String("end", end.String()))
	if end == EndCut || end == EndCancelled || end == EndClientGone {
		panic(http.ErrAbortHandler) // resets the stream
	}
}

// forwarding is one request on its way. It belongs to its goroutine, except where said.
type forwarding struct {
	*Seal
	w  http.ResponseWriter
	r  *http.Request
	id string
	x  *exchange

	mu       sync.Mutex // guards answered, and w until it is set: informational answers come from another goroutine
	answered bool       // the final answer, or the decision that there is none, is w's only user from now on
}

// run forwards the request and its answer. ctx is that of the request, or ends with errCancelled.
func (f *forwarding) run(ctx context.Context) End {
	defer f.unblockWhenCancelled(ctx)()
	c, err := f.pool.acquire(ctx)
	if err != nil {
		return f.broke(ctx, detailDial, err)
	}
	defer f.pool.release(c)
	res, err := c.RoundTrip(f.outgoing(ctx))
	f.mu.Lock()
	f.answered = true
	f.mu.Unlock()
	if err != nil {
		return f.broke(ctx, detailReset, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 999 {
		return f.broke(ctx, detailSpeak, errors.New("status out of range"))
	}
	return f.answer(ctx, res)
}

// unblockWhenCancelled bounds how long a cancelled request may stay blocked in a write to a client that does not read.
// The function it returns must be called before the handler returns.
func (f *forwarding) unblockWhenCancelled(ctx context.Context) func() {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		if context.Cause(ctx) == errCancelled {
			_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(closeGrace)) // HTTP/2 has deadlines
		}
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// outgoing is the request as it goes to the inner listener.
func (f *forwarding) outgoing(ctx context.Context) *http.Request {
	trace := &httptrace.ClientTrace{Got1xxResponse: f.informational}
	out := (&http.Request{
		Method:        f.r.Method,
		URL:           target(f.r),
		Host:          f.r.Host,
		Header:        requestHeader(f.r.Header),
		Body:          f.r.Body,
		ContentLength: f.r.ContentLength,
		Trailer:       f.r.Trailer, // the same map: net/http fills it when the body has been read
	}).WithContext(httptrace.WithClientTrace(ctx, trace))
	if out.ContentLength == 0 {
		out.Body = http.NoBody // END_STREAM came with the header, and goes with it
	}
	return out
}

// informational passes a 1xx answer on. net/http calls it from the goroutine that reads the connection, maybe after the
// request was given up.
func (f *forwarding) informational(code int, header textproto.MIMEHeader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered {
		return nil
	}
	h := f.w.Header()
	copyHeader(h, http.Header(header))
	f.w.WriteHeader(code)
	clear(h) // the final answer has a header of its own
	return nil
}

// answer passes a final answer on.
func (f *forwarding) answer(ctx context.Context, res *http.Response) End {
	h := f.w.Header()
	copyHeader(h, res.Header)
	asItIs(h)
	if brokeBeforeHeaders(h.Get(envoy.InnerHeader)) {
		h.Set(envoy.SealHeader, envoy.SealUnreachable)
	}
	declared := announced(res.Trailer)
	if len(declared) > 0 {
		h["Trailer"] = []string{strings.Join(declared, ", ")}
	}
	hasBody := bodyAllowed(f.r.Method, res.StatusCode) && res.ContentLength != 0
	repair := hasBody && repairable(res.Header) && f.live()
	if repair {
		h["Content-Length"] = nil // an ending may be written behind the body
	}
	end := EndWhole
	if h.Get(envoy.SealHeader) != "" {
		end = EndUnreachable
	}
	f.w.WriteHeader(res.StatusCode)
	clear(h) // WriteHeader took a copy; from here on the map holds trailers
	if hasBody {
		_ = http.NewResponseController(f.w).Flush() // a client that has gone shows in the first write
	}
	if err := f.copyBody(res.Body, bodyAllowed(f.r.Method, res.StatusCode)); err != nil {
		return f.cut(ctx, err, repair)
	}
	copyTrailer(h, declared, res.Trailer)
	return end
}

// errClientGone wraps what a write to a client that has gone fails with.
var errClientGone = errors.New("the client has gone")

// copyBody passes the body on piece by piece, each as soon as it comes.
func (f *forwarding) copyBody(body io.Reader, allowed bool) error {
	if !allowed {
		return nil
	}
	buf := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buf)
	flusher := http.NewResponseController(f.w)
	for {
		n, err := body.Read(*buf)
		if n > 0 {
			f.x.writing.Store(true)
			_, werr := f.w.Write((*buf)[:n])
			if werr == nil {
				werr = flusher.Flush()
			}
			f.x.writing.Store(false)
			if werr != nil {
				return errClientGone
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cut decides what becomes of a body that broke off.
func (f *forwarding) cut(ctx context.Context, err error, repair bool) End {
	if end := f.given(ctx, err); end != endUnknown {
		return end
	}
	f.log.Debug("upstream cut", slog.String("id", f.id), slog.Any("error", err), slog.Bool("repairable", repair))
	if !repair || !f.live() {
		f.onCut(f.id)
		return EndCut
	}
	f.w.Header().Set(http.TrailerPrefix+http.CanonicalHeaderKey(envoy.CutTrailer), "1")
	return EndRepaired
}

// broke answers for an upstream that broke before its headers.
func (f *forwarding) broke(ctx context.Context, detail string, err error) End {
	if end := f.given(ctx, err); end != endUnknown {
		return end
	}
	f.log.Debug("inner listener unreachable", slog.String("id", f.id), slog.String("detail", detail), slog.Any("error", err))
	h := f.w.Header()
	h.Set("Content-Type", "text/plain")
	h.Set(envoy.SealHeader, envoy.SealUnreachable)
	h.Set(envoy.InnerHeader, detail)
	f.w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(f.w, "no answer from the upstream\n") // a client that has gone needs none
	return EndUnreachable
}

// given reports whether the request was given up on our side: cancelled, or left by its client. endUnknown: neither, so
// the upstream is to blame.
func (f *forwarding) given(ctx context.Context, err error) End {
	switch context.Cause(ctx) {
	case errCancelled:
		f.awaitClose()
		return EndCancelled
	case errFinished:
		return EndWhole
	}
	if f.r.Context().Err() != nil || errors.Is(err, errClientGone) {
		return EndClientGone
	}
	return endUnknown
}

// awaitClose waits until Envoy has closed the stream of a cancelled request. Until then the session's ending may still
// be on its way to a client that reads slowly: a reset from here would overtake it.
func (f *forwarding) awaitClose() {
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-f.r.Context().Done():
	case <-t.C:
	}
}

func (f *forwarding) live() bool { return f.id != "" && f.isLive(f.id) }
