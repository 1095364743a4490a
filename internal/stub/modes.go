package stub

import (
	"slices"
	"strings"
	"time"
)

// Mode names one way of answering.
type Mode string

// The modes. The first four are the ones of the article this project started from, byte for byte.
const (
	ModeOK       Mode = "ok"
	ModeSlow     Mode = "slow"
	ModeThrottle Mode = "throttle"
	ModeTruncate Mode = "truncate"
	ModeStream   Mode = "stream"
	ModeError    Mode = "error"
	ModeEmpty    Mode = "empty"
	ModeRefuse   Mode = "refuse"
	ModeEvict    Mode = "evict"
)

// Times of the modes that have one of their own.
const (
	SlowLatency  = 8000 * time.Millisecond // service time of ModeSlow, whatever latency is configured or asked for
	TruncateHold = 50 * time.Millisecond   // between the partial event of ModeTruncate and the destroyed socket
)

// Bodies the modes answer with, exactly.
const (
	bodyOK       = `{}`
	bodyThrottle = `{"error":"rate_limit_exceeded"}`
	bodyTruncate = `data: {"delta":"partial "}` + "\n\n"
	bodyError    = `{"error":{"message":"the model server failed","type":"server_error","param":null,"code":"internal_error"}}`
	bodyEvict    = `{"error":{"message":"the request was evicted to free capacity","type":"service_unavailable","param":null,"code":"evicted"}}`
	bodyEmpty    = `{"id":"chatcmpl-stub","object":"chat.completion","created":1700000000,"model":"stub","choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`
	bodyRefuse   = `{"id":"chatcmpl-stub","object":"chat.completion","created":1700000000,"model":"stub","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"` + refusal + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":5,"total_tokens":6}}`

	refusal = "I cannot help with that."
)

// modeDoc describes a mode for people: what it does, and the head and body of its answers.
type modeDoc struct {
	mode   Mode
	what   string
	answer []string // lines
}

// modeDocs is in the order help prints it.
func modeDocs() []modeDoc {
	return []modeDoc{
		{ModeOK, "answers after the latency", []string{"200, no content-type", bodyOK}},
		{ModeSlow, "answers after 8000 ms, whatever the latency", []string{"200, no content-type", bodyOK}},
		{ModeThrottle, "refuses at the door, without a slot and without latency",
			[]string{"429, retry-after: 2, content-type: application/json", bodyThrottle}},
		{ModeTruncate, "sends half an answer and after 50 ms destroys the socket (HTTP/2: RST_STREAM); curl exits with 18",
			append([]string{"200, content-type: text/event-stream"}, sseLines(bodyTruncate)...)},
		{ModeStream, "streams a whole answer: --chunks content chunks, --gap apart, the first after the latency",
			append([]string{"200, content-type: text/event-stream"}, sseLines(streamText(1))...)},
		{ModeError, "fails after the latency", []string{"500, content-type: application/json", bodyError}},
		{ModeEmpty, "a 200 without an answer in it", withStream(bodyEmpty, emptyText())},
		{ModeRefuse, "a 200 whose answer is a refusal", withStream(bodyRefuse, refuseText())},
		{ModeEvict, "accepts, works for the latency, then gives the request up",
			append([]string{"503, content-type: application/json", bodyEvict, "or, if the request asks for a stream, 200, content-type: text/event-stream"}, sseLines(evictText())...)},
	}
}

func withStream(json, sse string) []string {
	head := []string{"200, content-type: application/json", json, "or, if the request asks for a stream, content-type: text/event-stream"}
	return append(head, sseLines(sse)...)
}

func sseLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })
}

// ModeNames returns the modes in the order help prints them.
func ModeNames() []string {
	var names []string
	for _, d := range modeDocs() {
		names = append(names, string(d.mode))
	}
	return names
}

// Valid reports whether m is one of the modes above.
func (m Mode) Valid() bool { return slices.Contains(ModeNames(), string(m)) }

// Help describes every mode with its exact answer, as indented plain text.
func Help() string {
	var b strings.Builder
	for _, d := range modeDocs() {
		b.WriteString("  " + string(d.mode) + ": " + d.what + "\n")
		for _, line := range d.answer {
			b.WriteString("      " + line + "\n")
		}
	}
	return b.String()
}
