package e2e

import (
	"strings"
	"time"
)

// sdkScenario is one column of the SDK table: what the upstream does, and what becomes of it.
type sdkScenario struct {
	name    string
	outcome string        // brownout's outcome
	budget  time.Duration // what the client states, 0: nothing
}

// The columns. A stated budget of 700 ms passes while the upstream still talks; a silence of 900 ms is a stall.
var sdkScenarios = []sdkScenario{
	{name: "normal", outcome: "ok"},
	{name: "cut", outcome: "truncated"},
	{name: "deadline", outcome: "deadline", budget: 700 * time.Millisecond},
	{name: "stall", outcome: "stalled"},
	{name: "end without evidence", outcome: "truncated"},
	{name: "upstream error frame", outcome: "upstream_error"},
	{name: "cut inside tool arguments", outcome: "truncated"},
}

// What every scripted answer says: all of it, and what has been said when it breaks off.
const (
	sdkWhole   = "Hello, world!"
	sdkPartial = "Hello, "
	sdkArgs    = `{"path":"a`
)

// sdkDialect is an answer in a dialect, in pieces.
type sdkDialect struct {
	name   string
	lines  bool   // lines of JSON, not events
	head   string // what comes before the text
	text   func(string) string
	filler string // says that the answer goes on, without text
	tail   string // the end of a whole answer
	oops   string // an error in the middle
	tool   string // head and the beginning of a tool call, which ends inside its arguments
	half   string // half a unit
	json   string // a whole answer that is not streamed; its tool call is cut after the text
	fault  string // an error in its place
}

// path is where the dialect's streams are asked for.
func (d sdkDialect) path() string {
	return map[string]string{"openai_chat": chatURL, "openai_completions": completionsURL, "openai_responses": responsesURL, "anthropic": messagesURL, "gemini": geminiURL, "ollama": ollamaURL}[d.name]
}

func (d sdkDialect) contentType() string {
	if d.lines {
		return "application/x-ndjson"
	}
	return "text/event-stream"
}

// scriptName is the value of x-script for a scenario.
func (d sdkDialect) scriptName(streamed bool, scenario string) string {
	how := "json"
	if streamed {
		how = "stream"
	}
	return strings.Join([]string{d.name, how, strings.ReplaceAll(scenario, " ", "-")}, "/")
}

// streamScript is what the upstream does in a scenario when it streams.
func (d sdkDialect) streamScript(scenario string) script {
	s := script{header: map[string]string{"content-type": d.contentType()}, chunks: []string{d.head, d.text("Hel"), d.text("lo, ")}}
	switch scenario {
	case "normal":
		s.chunks = append(s.chunks, d.text("world!"), d.tail)
	case "cut":
		s.chunks, s.end = append(s.chunks, d.half), cut
	case "deadline":
		s.gap, s.end = 50*time.Millisecond, hang
		for range 40 {
			s.chunks = append(s.chunks, d.filler)
		}
	case "stall":
		s.end = hang
	case "upstream error frame":
		s.chunks = append(s.chunks, d.oops)
	case "cut inside tool arguments":
		s.chunks, s.end = []string{d.tool}, cut
	}
	if s.chunks[0] == "" { // a piece without bytes would end a chunked body
		s.chunks = s.chunks[1:]
	}
	return s
}

// jsonScript is what the upstream does in a scenario when it answers in one document.
func (d sdkDialect) jsonScript(scenario string) script {
	half := d.json[:strings.Index(d.json, sdkWhole)+len(sdkPartial)]
	s := script{header: map[string]string{"content-type": "application/json"}, chunks: []string{half}}
	switch scenario {
	case "normal":
		s.chunks = []string{d.json}
	case "cut":
		s.end = cut
	case "deadline":
		s.end = hang
	case "stall": // nothing at all comes
		s.chunks, s.end = nil, hang
	case "upstream error frame":
		s.chunks = []string{d.fault}
	case "cut inside tool arguments":
		s.chunks, s.end = []string{half + `,"tool_calls":[{"function":{"name":"write","arguments":"{\"path\":\"a`}, cut
	}
	return s
}

// event is one event of a stream whose events have names.
func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// textIn puts a text into the place marked % of a template.
func textIn(template string) func(string) string {
	return func(s string) string { return strings.Replace(template, "%", s, 1) }
}

const (
	chatHead      = `data: {"id":"c1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,`
	chatEnd       = `}]}` + "\n\n"
	responsesHead = `{"id":"resp_1","object":"response","created_at":1700000000,"error":null,"instructions":null,"metadata":{},"model":"m","parallel_tool_calls":true,"temperature":1,"tool_choice":"auto","tools":[],"top_p":1,`
	anthropicHead = `{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_sequence":null,`
)

var sdkChat = sdkDialect{
	name:   "openai_chat",
	head:   chatHead + `"delta":{"role":"assistant","content":""},"finish_reason":null` + chatEnd,
	text:   textIn(chatHead + `"delta":{"content":"%"},"finish_reason":null` + chatEnd),
	filler: chatHead + `"delta":{"content":""},"finish_reason":null` + chatEnd,
	tail:   chatHead + `"delta":{},"finish_reason":"stop"` + chatEnd + "data: [DONE]\n\n",
	oops:   `data: {"error":{"message":"engine failed","type":"server_error","param":null,"code":"engine"}}` + "\n\n",
	tool: chatHead + `"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"write","arguments":""}}]},"finish_reason":null` + chatEnd +
		chatHead + `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":\"a"}}]},"finish_reason":null` + chatEnd,
	half:  `data: {"id":"c1","object":"chat.compl`,
	json:  `{"id":"c1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello, world!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}}`,
	fault: `{"error":{"message":"engine failed","type":"server_error","param":null,"code":"engine"}}`,
}

const completionsHead = `"id":"cmpl_1","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,"logprobs":null,`

// A completion has no tool calls: that column is a cut before the text.
var sdkCompletions = sdkDialect{
	name:   "openai_completions",
	text:   textIn("data: {" + completionsHead + `"text":"%","finish_reason":null` + chatEnd),
	filler: "data: {" + completionsHead + `"text":"","finish_reason":null` + chatEnd,
	tail:   "data: {" + completionsHead + `"text":"","finish_reason":"stop"` + chatEnd + "data: [DONE]\n\n",
	oops:   `data: {"error":{"message":"engine failed","type":"server_error","param":null,"code":"engine"}}` + "\n\n",
	tool:   "data: {" + completionsHead + `"text":"","finish_reason":null` + chatEnd + "data: {" + completionsHead + `"text":"Hel`,
	half:   `data: {"id":"cmpl_1","object":"text_compl`,
	json:   "{" + completionsHead + `"text":"Hello, world!","finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}}`,
	fault:  `{"error":{"message":"engine failed","type":"server_error","param":null,"code":"engine"}}`,
}

const responsesItem = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello, world!","annotations":[]}]}`

var sdkResponses = sdkDialect{
	name: "openai_responses",
	head: event("response.created", `{"type":"response.created","sequence_number":0,"response":`+responsesHead+`"status":"in_progress","incomplete_details":null,"output":[],"usage":null}}`) +
		event("response.output_item.added", `{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}`) +
		event("response.content_part.added", `{"type":"response.content_part.added","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}`),
	text:   textIn(event("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"%"}`)),
	filler: event("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":""}`),
	tail: event("response.output_text.done", `{"type":"response.output_text.done","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"text":"Hello, world!"}`) +
		event("response.content_part.done", `{"type":"response.content_part.done","sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello, world!","annotations":[]}}`) +
		event("response.output_item.done", `{"type":"response.output_item.done","sequence_number":6,"output_index":0,"item":`+responsesItem+`}`) +
		event("response.completed", `{"type":"response.completed","sequence_number":7,"response":`+responsesHead+`"status":"completed","incomplete_details":null,"output":[`+responsesItem+`],"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":4}}}`),
	oops: event("error", `{"type":"error","sequence_number":4,"error":{"type":"server_error","code":"engine","message":"engine failed","param":null}}`),
	tool: event("response.created", `{"type":"response.created","sequence_number":0,"response":`+responsesHead+`"status":"in_progress","incomplete_details":null,"output":[],"usage":null}}`) +
		event("response.output_item.added", `{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_1","name":"write","arguments":""}}`) +
		event("response.function_call_arguments.delta", `{"type":"response.function_call_arguments.delta","sequence_number":2,"item_id":"fc_1","output_index":0,"delta":"{\"path\":\"a"}`),
	half:  "event: response.output_text.delta\ndata: {\"type\":\"response.outp",
	json:  `{"id":"resp_1","object":"response","created_at":1700000000,"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"model":"m","parallel_tool_calls":true,"temperature":1,"tool_choice":"auto","tools":[],"top_p":1,"status":"completed","output":[` + responsesItem + `],"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":4}}`,
	fault: `{"error":{"message":"engine failed","type":"server_error","param":null,"code":"engine"}}`,
}

var sdkAnthropic = sdkDialect{
	name: "anthropic",
	head: event("message_start", `{"type":"message_start","message":`+anthropicHead+`"content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}`) +
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
	text:   textIn(event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%"}}`)),
	filler: event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`),
	tail: event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":3}}`) +
		event("message_stop", `{"type":"message_stop"}`),
	oops: event("error", `{"type":"error","error":{"type":"api_error","message":"engine failed"}}`),
	tool: event("message_start", `{"type":"message_start","message":`+anthropicHead+`"content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}`) +
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"write","input":{}}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"a"}}`),
	half:  "event: content_block_delta\ndata: {\"type\":\"content_bl",
	json:  anthropicHead + `"content":[{"type":"text","text":"Hello, world!"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":3}}`,
	fault: `{"type":"error","error":{"type":"api_error","message":"engine failed"}}`,
}

const geminiEnd = `"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":3,"totalTokenCount":4},"modelVersion":"m"}`

// A Gemini function call comes whole in one frame, so a cut inside its arguments is a cut inside a frame.
var sdkGemini = sdkDialect{
	name:   "gemini",
	text:   textIn(`data: {"candidates":[{"content":{"parts":[{"text":"%"}],"role":"model"},"index":0}],` + geminiEnd + "\n\n"),
	filler: `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}],` + geminiEnd + "\n\n",
	tail:   `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],` + geminiEnd + "\n\n",
	oops:   `data: {"error":{"code":500,"message":"engine failed","status":"INTERNAL"}}` + "\n\n",
	tool: `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}],` + geminiEnd + "\n\n" +
		`data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"write","args":{"path":"a`,
	half:  `data: {"candidates":[{"cont`,
	json:  `{"candidates":[{"content":{"parts":[{"text":"Hello, world!"}],"role":"model"},"finishReason":"STOP","index":0}],` + geminiEnd,
	fault: `{"error":{"code":500,"message":"engine failed","status":"INTERNAL"}}`,
}

const ollamaHead = `{"model":"m","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":`

// An Ollama tool call comes whole in one line too.
var sdkOllama = sdkDialect{
	name:   "ollama",
	lines:  true,
	text:   textIn(ollamaHead + `"%"},"done":false}` + "\n"),
	filler: ollamaHead + `""},"done":false}` + "\n",
	tail:   ollamaHead + `""},"done":true,"done_reason":"stop","prompt_eval_count":1,"eval_count":3}` + "\n",
	oops:   `{"error":"engine failed"}` + "\n",
	tool:   ollamaHead + `""},"done":false}` + "\n" + ollamaHead + `"","tool_calls":[{"function":{"name":"write","arguments":{"path":"a`,
	half:   `{"model":"m","creat`,
	json:   ollamaHead + `"Hello, world!"},"done":true,"done_reason":"stop","prompt_eval_count":1,"eval_count":3}`,
	fault:  `{"error":"engine failed"}`,
}
