package dialect

import "strings"

var names = [numIDs]string{"generic", "openai_chat", "openai_completions", "openai_responses", "anthropic", "gemini", "ollama"}

// String is the metric label and policy name of the dialect.
func (id ID) String() string {
	if id < numIDs {
		return names[id]
	}
	return "invalid"
}

// IDs lists every dialect.
func IDs() []ID {
	all := make([]ID, numIDs)
	for i := range all {
		all[i] = ID(i)
	}
	return all
}

// ByName finds a dialect by its policy name.
func ByName(name string) (ID, bool) {
	for i, n := range names {
		if n == name {
			return ID(i), true
		}
	}
	return Generic, false
}

// NDJSON says whether the dialect's streams are lines of JSON instead of events.
func (id ID) NDJSON() bool { return id == Ollama }

// ByPath finds the dialect of a request path, whatever prefix a gateway puts in front. A query is ignored. False: the
// path tells nothing, the stream is Generic until its first event says more.
func ByPath(path string) (ID, bool) {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimRight(path, "/")
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		if id, ok := byMethod(path, path[i+1:]); ok {
			return id, true
		}
	}
	switch {
	case strings.HasSuffix(path, "/chat/completions"), strings.HasSuffix(path, "/fim/completions"): // Mistral's fill-in-the-middle answers in chat chunks
		return Chat, true
	case openai(path, "/completions"):
		return Completions, true
	case openai(path, "/responses"):
		return Responses, true
	case strings.HasSuffix(path, "/v1/messages"): // not /v1/threads/…/messages
		return Anthropic, true
	case strings.HasSuffix(path, "/api/chat"), strings.HasSuffix(path, "/api/generate"):
		return Ollama, true
	}
	return Generic, false
}

// openai says whether path names an OpenAI resource: under a version or under Azure's /openai.
func openai(path, resource string) bool {
	base, ok := strings.CutSuffix(path, resource)
	return ok && (strings.HasSuffix(base, "/v1") || strings.Contains(base+"/", "/openai/"))
}

// byMethod reads a last segment of the form model:method, which Google's APIs use for several vendors' models.
func byMethod(path, last string) (ID, bool) {
	last = strings.ReplaceAll(strings.ReplaceAll(last, "%3A", ":"), "%3a", ":")
	i := strings.LastIndexByte(last, ':')
	if i < 0 {
		return Generic, false
	}
	switch last[i+1:] {
	case "streamGenerateContent", "generateContent":
		return Gemini, true
	case "streamRawPredict", "rawPredict":
		if strings.Contains(path, "/publishers/anthropic/") {
			return Anthropic, true
		}
	}
	return Generic, false
}
