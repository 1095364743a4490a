// Package dialect knows the wire formats in which model servers answer: what in a stream is content, what proves that
// it is complete, how one that was cut can still end legally and honestly, how one that is degraded says so, what a
// fixed answer looks like, how an error of ours must look so that the callers' SDKs read it, and what a request asks
// for. Each dialect is one file and its transcripts in testdata; chat and completions share openai.go.
//
// A Stream judges one answer and is not safe for concurrent use. Everything is pure: bytes in, marks and bytes out;
// memory is bounded whatever the upstream sends.
package dialect
