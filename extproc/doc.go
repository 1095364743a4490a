// Package extproc is brownout as an Envoy external processor (envoy.service.ext_proc.v3): it turns messages into
// events of a session, performs the session's effects, and answers. It is the only package that knows Envoy's
// service protos.
//
// One gRPC stream is one request. Its events go through a mailbox: whoever posts while nobody drains it drains it,
// so events are handled one at a time, in order, on whatever goroutine they come from: the stream's own (messages),
// another stream's (a slot came free), a timer's. Answers go through an outbox with one flusher at a time, since
// Send may block and must not run twice at once. No lock is held while the engine, a limiter or Send is called.
//
//	s := extproc.New(snapshot, extproc.Options{})
//	g := grpc.NewServer(extproc.ServerOptions(8 << 20)...)
//	s.Register(g)
package extproc
