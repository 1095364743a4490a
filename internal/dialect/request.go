package dialect

import (
	"bytes"
	"strings"

	"github.com/envoy-brownout/brownout/internal/jsonedit"
)

// Facts are what a request says that matters before it is answered.
type Facts struct {
	Object bool // the body is one JSON object that has no key twice at its top
	// Stream: the caller reads the answer as a stream. A Gemini request for pieces of a JSON array is none.
	Stream       bool
	IncludeUsage bool   // … and wants a chunk with usage at its end
	Model        string // the model asked for, in the body or the path; "": none
	// Unkept is why an answer must not be kept, because the request leaves something behind on the server, continues
	// what lies there, or lets the server act: "store", "previous_response_id", "conversation", "background" or
	// "server_tools". "": nothing speaks against it.
	Unkept  string
	Sampled bool // states a temperature above 0
}

// ReadRequest reads a request: its path with the query, the accept header, and the body as it came. A body that is no
// JSON object leaves what the path and the header tell.
func ReadRequest(id ID, path, accept string, body []byte) Facts {
	var f Facts
	doc, ok := parse(body)
	if f.Object = ok && doc.object(); !f.Object {
		doc = nil
	}
	var r request
	f.Object = f.Object && r.read(doc)
	f.Stream = r.streams(id, path, accept)
	f.IncludeUsage = f.Stream && (id == Chat || id == Completions) && r.options.get("include_usage").isTrue()
	f.Model = r.model.decoded()
	if from, to, ok := modelInPath(path); ok {
		f.Model = unescape(path[from:to])
	}
	f.Unkept = r.unkept(id)
	f.Sampled = above0(r.temperature)
	return f
}

// request are the members of a request's body that are read.
type request struct {
	stream, options, model, temperature     text
	store, previous, conversation, detached text
	tools, searches, servers, container     text
}

// read finds the members, of several with the same key the last, as servers read it; false if there are such.
func (r *request) read(doc text) bool {
	seen, once := make(map[string]bool), true
	for m := doc.members(); m.next(); {
		once = once && !seen[string(m.key)]
		seen[string(m.key)] = true
		r.member(string(m.key), m.value)
	}
	return once
}

func (r *request) member(key string, v text) {
	switch key {
	case "stream":
		r.stream = v
	case "stream_options":
		r.options = v
	case "model":
		r.model = v
	case "temperature":
		r.temperature = v
	case "generationConfig", "generation_config", "options": // Gemini, Ollama
		if t := v.get("temperature"); t != nil {
			r.temperature = t
		}
	case "store":
		r.store = v
	case "previous_response_id":
		r.previous = v
	case "conversation":
		r.conversation = v
	case "background":
		r.detached = v
	case "tools":
		r.tools = v
	case "web_search_options":
		r.searches = v
	case "mcp_servers":
		r.servers = v
	case "container":
		r.container = v
	}
}

// streams says whether the caller reads a stream. Ollama streams unless told not to; Gemini tells by the path.
func (r *request) streams(id ID, path, accept string) bool {
	switch id {
	case Gemini:
		return streamsByPath(path) && hasSSE(path)
	case Ollama:
		return !r.stream.isFalse()
	case Generic:
		return r.stream.isTrue() || strings.Contains(strings.ToLower(accept), "text/event-stream")
	}
	return r.stream.isTrue()
}

// unkept is why the answer must not be kept.
func (r *request) unkept(id ID) string {
	switch {
	case r.store.isTrue():
		return "store"
	case r.previous.set():
		return "previous_response_id"
	case r.conversation.set() && !r.conversation.array(): // a list is what other services call their messages
		return "conversation"
	case r.detached.isTrue():
		return "background"
	case serverTools(r.tools), id == Chat && r.searches.object(), id == Anthropic && (r.container.set() || len(r.servers) > 2):
		return "server_tools"
	}
	return ""
}

// callersTools are the beginnings of the types of tools that the caller runs, not the server.
var callersTools = []string{"function", "custom", "bash", "text_editor", "computer", "memory", "local_shell", "shell", "apply_patch"}

// serverTools says whether the server may run one of the tools.
func serverTools(tools text) bool {
	for e := tools.elements(); e.nextElement(); {
		if kind := e.value.get("type"); kind.quoted() {
			if !hasPrefix(kind.decoded(), callersTools) {
				return true
			}
			continue
		}
		for m := e.value.members(); m.next(); {
			if m.value.object() && geminiTool(string(m.key)) {
				return true
			}
		}
	}
	return false
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// geminiTool says whether a member of a tool without a type names one that Google runs. Anthropic's tools of the caller
// have no type either.
func geminiTool(key string) bool {
	switch key {
	case "googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval", "codeExecution", "code_execution",
		"urlContext", "url_context", "googleMaps", "google_maps", "fileSearch", "file_search", "retrieval", "enterpriseWebSearch",
		"enterprise_web_search", "mcpServers", "mcp_servers":
		return true
	}
	return false
}

// above0 says whether a number, or one in quotes, is above 0.
func above0(v text) bool {
	n := []byte(v)
	if v.quoted() {
		n = bytes.TrimSpace(v.inner())
	}
	if len(n) == 0 || n[0] == '-' || n[0] != '+' && n[0] != '.' && (n[0] < '0' || n[0] > '9') {
		return false
	}
	if i := bytes.IndexAny(n, "eE"); i >= 0 {
		n = n[:i]
	}
	return bytes.ContainsAny(n, "123456789")
}

// PromptText says which strings of a request are prompt, by the path that leads to them: keys, with "#" for the
// elements of an array.
func PromptText(id ID) func(path []string) bool {
	patterns := prompts[id%numIDs]
	return func(path []string) bool {
		for _, p := range patterns {
			if matches(p, path) {
				return true
			}
		}
		return false
	}
}

// prompts are the paths of prompt text, with slashes between keys.
var prompts = [numIDs][]string{
	Generic:     {"prompt", "input", "text", "query", "messages/#/content", "messages/#/content/#/text"},
	Chat:        {"messages/#/content", "messages/#/content/#/text"},
	Completions: {"prompt", "prompt/#"},
	Responses:   {"input", "input/#/content", "input/#/content/#/text", "instructions"},
	Anthropic:   {"system", "system/#/text", "messages/#/content", "messages/#/content/#/text"},
	Gemini: {"contents/#/parts/#/text", "contents/parts/#/text", "contents/parts/text", "contents/#/parts/text",
		"systemInstruction/parts/#/text", "systemInstruction/parts/text", "system_instruction/parts/#/text", "system_instruction/parts/text"},
	Ollama: {"prompt", "system", "messages/#/content"},
}

// matches compares a path with a pattern.
func matches(pattern string, path []string) bool {
	for i, key := range path {
		head, rest, more := strings.Cut(pattern, "/")
		if head != key || more != (i < len(path)-1) {
			return false
		}
		pattern = rest
	}
	return len(path) > 0
}

// RewriteModel puts another model into a request, where its dialect has it: in the path of Gemini, of Vertex AI and of
// Azure's deployments, percent-encoded, else in the body. newBody is nil if the body stays. A body of a known dialect
// that names no model gets one. False: there is no place for it, and nothing is to be changed.
func RewriteModel(id ID, path string, body []byte, model string) (newPath string, newBody []byte, ok bool) {
	if from, to, ok := modelInPath(path); ok {
		if unescape(path[from:to]) == model {
			return path, nil, true
		}
		return path[:from] + escape(model) + path[to:], nil, true
	}
	if id == Gemini {
		return path, nil, false
	}
	out, err := jsonedit.ReplaceString(nil, body, "model", model)
	if err == jsonedit.ErrMissing && id != Generic {
		out, err = jsonedit.AddMembers(nil, body, jsonedit.Member{Key: "model", Value: jsonedit.AppendQuoted(nil, model)})
	}
	switch {
	case err != nil:
		return path, nil, false
	case bytes.Equal(out, body):
		return path, nil, true
	}
	return path, out, true
}
