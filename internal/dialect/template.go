package dialect

import (
	"strconv"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/jsonedit"
)

// Template is a whole answer of a dialect with a fixed text. It used nothing and ends as one that said all it had to
// say; what it is, its label tells.
type Template struct {
	ID           ID
	Stream       bool // as events or lines; else one document
	IncludeUsage bool // of a stream in the OpenAI dialects: a chunk with usage comes before the sentinel
	Text         string
	Model        string // the model asked for: clients demand one
	// Path is that of the request. It tells two kinds of Ollama's answers apart, and Gemini's array of pieces.
	Path    string
	Created time.Time
	Label
}

// ident stands for the ids that a model server would have given.
const ident = "brownout"

// lineEnds escapes what some clients take for the end of a line, against all standards of streams.
var lineEnds = strings.NewReplacer("\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`)

// Append appends the answer to dst. contentType is the media type it has.
func (t Template) Append(dst []byte) (body []byte, contentType string) {
	w := templater{
		Template: t,
		out:      dst,
		text:     lineEnds.Replace(string(jsonedit.AppendQuoted(nil, t.Text))),
		model:    string(jsonedit.AppendQuoted(nil, t.Model)),
		created:  strconv.FormatInt(max(t.Created.Unix(), 0), 10),
	}
	if t.Stream {
		w.stream()
		if t.ID.NDJSON() {
			return w.out, "application/x-ndjson"
		}
		return w.out, "text/event-stream"
	}
	array := t.ID == Gemini && streamsByPath(t.Path)
	if array {
		w.add("[")
	}
	w.document()
	w.out = t.AppendMeta(append(w.out, `,"meta":`...))
	w.add("}")
	if array {
		w.add("]")
	}
	return w.out, "application/json"
}

// templater writes one template.
type templater struct {
	Template
	out                  []byte
	text, model, created string // as JSON
	sequence             int    // of the next event of Responses
}

// add appends pieces of JSON.
func (w *templater) add(pieces ...string) {
	for _, p := range pieces {
		w.out = append(w.out, p...)
	}
}

// document appends the object of an answer in one piece, without the brace that closes it.
func (w *templater) document() {
	switch w.ID {
	case Chat:
		w.add(`{"id":"`, ident, `","object":"chat.completion","created":`, w.created, `,"model":`, w.model,
			`,"choices":[{"index":0,"message":{"role":"assistant","content":`, w.text,
			`,"refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":`, noUsage)
	case Completions:
		w.add(`{"id":"`, ident, `","object":"text_completion","created":`, w.created, `,"model":`, w.model,
			`,"choices":[{"text":`, w.text, `,"index":0,"logprobs":null,"finish_reason":"stop"}],"usage":`, noUsage)
	case Responses:
		w.response("completed", "["+w.item("completed", textPart(w.text))+"]")
		w.out = w.out[:len(w.out)-1]
	case Anthropic:
		w.message(`[{"type":"text","text":`+w.text+`}]`, `"end_turn"`)
		w.out = w.out[:len(w.out)-1]
	case Gemini:
		w.gemini(w.text, true)
	case Ollama:
		w.line(w.text, true)
	default:
		w.add(`{"answer":`, w.text)
	}
}

// stream appends the answer in pieces.
func (w *templater) stream() {
	switch w.ID {
	case Chat:
		w.chunk("", `"delta":{"role":"assistant","content":""},"logprobs":null`, "null")
		w.chunk("", `"delta":{"content":`+w.text+`},"logprobs":null`, "null")
		w.chunk("event: done\n", `"delta":{},"logprobs":null`, `"stop"`)
		w.sentinel()
	case Completions:
		w.chunk("", `"text":`+w.text+`,"logprobs":null`, "null")
		w.chunk("event: done\n", `"text":"","logprobs":null`, `"stop"`)
		w.sentinel()
	case Responses:
		w.responseEvents()
	case Anthropic:
		w.messageEvents()
	case Gemini:
		w.add("data: ")
		w.gemini(w.text, false)
		w.add("}\n\ndata: ")
		w.gemini(`""`, true)
		w.out = w.closeKeys(w.out, "\n\n")
	case Ollama:
		w.line(w.text, false)
		w.add("}\n")
		w.line(`""`, true)
		w.out = w.closeKeys(w.out, "\n")
	default:
		w.add(`data: {"delta":`, w.text, "}\n\n")
		w.out = w.appendBare(w.out)
	}
}

const noUsage = `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`

// chunk appends one chunk of the OpenAI dialects with one choice; the one that finishes it carries the label.
func (w *templater) chunk(name, choice, finish string) {
	w.head(name)
	w.add(`{"index":0,`, choice, `,"finish_reason":`, finish, `}]`)
	if w.IncludeUsage {
		w.add(`,"usage":null`)
	}
	if name == "" {
		w.add("}\n\n")
		return
	}
	w.out = w.closeKeys(w.out, "\n\n")
}

// head appends a chunk up to its choices.
func (w *templater) head(name string) {
	object := "chat.completion.chunk"
	if w.ID == Completions {
		object = "text_completion"
	}
	w.add(name, `data: {"id":"`, ident, `","object":"`, object, `","created":`, w.created, `,"model":`, w.model, `,"choices":[`)
}

// sentinel appends what follows the chunk that finishes.
func (w *templater) sentinel() {
	if w.IncludeUsage {
		w.head("")
		w.add(`],"usage":`, noUsage, "}\n\n")
	}
	w.add(doneFrame)
}

// textPart is a part of a response's message; item is that message.
func textPart(text string) string {
	return `{"type":"output_text","annotations":[],"logprobs":[],"text":` + text + `}`
}

func (w *templater) item(status, parts string) string {
	return `{"id":"msg_` + ident + `","type":"message","status":"` + status + `","role":"assistant","content":[` + parts + `]}`
}

// response appends a response object.
func (w *templater) response(status, output string) {
	usage := "null"
	if status == "completed" {
		usage = `{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}`
	}
	w.add(`{"id":"resp_`, ident, `","object":"response","created_at":`, w.created, `,"status":"`, status,
		`","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"metadata":{},"model":`, w.model,
		`,"output":`, output,
		`,"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":null,`+
			`"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":null,"truncation":"disabled","usage":`, usage, `}`)
}

// event begins an event of Responses; what follows closes it.
func (w *templater) event(name, kind string) {
	w.add("event: ", name, "\ndata: {\"type\":\"", kind, `","sequence_number":`, strconv.Itoa(w.sequence))
	w.sequence++
}

func (w *templater) responseEvents() {
	const end = "}\n\n"
	const where = `,"item_id":"msg_` + ident + `","output_index":0,"content_index":0`
	for _, kind := range []string{"response.created", "response.in_progress"} {
		w.event(kind, kind)
		w.add(`,"response":`)
		w.response("in_progress", "[]")
		w.add(end)
	}
	for _, e := range []struct{ kind, rest string }{
		{"response.output_item.added", `,"output_index":0,"item":` + w.item("in_progress", "")},
		{"response.content_part.added", where + `,"part":` + textPart(`""`)},
		{"response.output_text.delta", where + `,"delta":` + w.text + `,"logprobs":[]`},
		{"response.output_text.done", where + `,"text":` + w.text + `,"logprobs":[]`},
		{"response.content_part.done", where + `,"part":` + textPart(w.text)},
		{"response.output_item.done", `,"output_index":0,"item":` + w.item("completed", textPart(w.text))},
	} {
		w.event(e.kind, e.kind)
		w.add(e.rest, end)
	}
	w.event("done", "response.completed")
	w.add(`,"response":`)
	w.response("completed", "["+w.item("completed", textPart(w.text))+"]")
	w.out = w.closeKeys(w.out, "\n\n")
}

// message appends a message object of Anthropic.
func (w *templater) message(content, stop string) {
	w.add(`{"id":"msg_`, ident, `","type":"message","role":"assistant","model":`, w.model, `,"content":`, content,
		`,"stop_reason":`, stop, `,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}`)
}

func (w *templater) messageEvents() {
	w.add("event: message_start\ndata: {\"type\":\"message_start\",\"message\":")
	w.message("[]", "null")
	w.add("}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":", w.text, "}}\n\n",
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":0}}\n\n")
	w.add("event: done\ndata: {\"type\":\"ping\"")
	w.out = w.closeKeys(w.out, "\n\n")
	w.add("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
}

// gemini appends an object with one candidate, without the brace that closes it.
func (w *templater) gemini(text string, ends bool) {
	w.add(`{"candidates":[{"content":{"parts":[{"text":`, text, `}],"role":"model"}`)
	if ends {
		w.add(`,"finishReason":"STOP"`)
	}
	w.add(`,"index":0}],"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":0,"totalTokenCount":0},"modelVersion":`, w.model,
		`,"responseId":"`, ident, `"`)
}

// line appends a line of Ollama, without the brace that closes it.
func (w *templater) line(text string, ends bool) {
	w.add(`{"model":`, w.model, `,"created_at":"`, w.Created.UTC().Format(time.RFC3339Nano))
	if path, _, _ := strings.Cut(w.Path, "?"); strings.HasSuffix(strings.TrimRight(path, "/"), "/api/generate") {
		w.add(`","response":`, text)
	} else {
		w.add(`","message":{"role":"assistant","content":`, text, `}`)
	}
	if ends {
		w.add(`,"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":0,"eval_duration":0`)
		return
	}
	w.add(`,"done":false`)
}
