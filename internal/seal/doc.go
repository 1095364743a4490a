// Package seal is the hop that turns an upstream that died in mid-answer into a body that ended.
//
// Envoy resets the client when an upstream dies after response headers, and no filter can prevent it. A sealed request
// therefore goes from Envoy to the seal and back into Envoy's inner listener, which reaches the same upstream:
//
//	Envoy front listener ─► seal ─► Envoy inner listener ─► upstream
//
// Both hops are HTTP/2 without TLS. The seal forwards each request and each answer as they are: method, path byte for
// byte, authority, header values in their order, bodies as they come and under flow control, trailers, informational
// responses. It knows no event stream and writes no ending; the session in the external processor judges answers. What
// it does of its own:
//
//   - A read error of the upstream's body while the session of that request is live in this process (Options.Live) ends
//     the body cleanly with the trailer x-brownout-cut, if an ending could be appended to such a body: an event stream,
//     NDJSON or JSON without content-encoding. Of those it drops content-length, which a written ending would belie.
//     Every other cut is passed on as a cut.
//   - An upstream that broke before its headers is a 503 marked x-brownout-seal: unreachable. Replies of the inner
//     Envoy's own carry x-brownout-inner; those whose details mean the same get the mark too.
//   - Cancel ends the upstream's work at once, even when the client has stopped reading.
//
// What HTTP/2 in Go's library does not carry over: the order of different header names, request trailers that no
// trailer header announces, the spelling of cookie separators, and a path that holds a broken percent-escape (the
// request is reset). Envoy answers an expect header itself. CONNECT and upgrades are refused: their routes are never
// sealed.
//
// Bounds: a stream buffers at most one window (64 KiB) in each direction, so slow readers cost memory of their own and
// hold nobody up; headers have 256 KiB. How many requests there are is Envoy's circuit breaker's to bound.
//
// A Seal is safe for concurrent use. Live is called from the goroutines of requests and must not block. The caller of
// Serve owns it: Shutdown waits for everything the seal started.
package seal
