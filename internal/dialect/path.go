package dialect

import (
	"net/url"
	"strings"
)

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

// IsMistral says whether a path is one of Mistral's API alone, for Options.
func IsMistral(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return strings.HasSuffix(strings.TrimRight(path, "/"), "/fim/completions")
}

// openai says whether path names an OpenAI resource: under a version or under Azure's /openai.
func openai(path, resource string) bool {
	base, ok := strings.CutSuffix(path, resource)
	return ok && (strings.HasSuffix(base, "/v1") || strings.Contains(base+"/", "/openai/"))
}

// byMethod reads a last segment of the form model:method, which Google's APIs use for several vendors' models.
func byMethod(path, last string) (ID, bool) {
	switch _, method := splitMethod(last); method {
	case "streamGenerateContent", "generateContent":
		return Gemini, true
	case "streamRawPredict", "rawPredict":
		if strings.Contains(path, "/publishers/anthropic/") {
			return Anthropic, true
		}
	}
	return Generic, false
}

// streamsByPath says whether the path asks Gemini for the answer in pieces.
func streamsByPath(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	_, method := splitMethod(path[strings.LastIndexByte(path, '/')+1:])
	return method == "streamGenerateContent"
}

// hasSSE says whether the query asks Google for events instead of an array.
func hasSSE(path string) bool {
	_, query, _ := strings.Cut(path, "?")
	for p := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(p, "="); (name == "alt" || name == "$alt" || name == "%24alt") && strings.EqualFold(value, "sse") {
			return true
		}
	}
	return false
}

// splitMethod splits a last segment of the form model:method, whose colon may be encoded. method is "" if it has
// none; model is raw.
func splitMethod(last string) (model, method string) {
	i, n := strings.LastIndexByte(last, ':'), 1
	if k := max(strings.LastIndex(last, "%3A"), strings.LastIndex(last, "%3a")); k > i {
		i, n = k, 3
	}
	if i < 0 {
		return last, ""
	}
	return last[:i], last[i+n:]
}

// modelInPath finds the model in the path of an API that has it there: path[from:to].
func modelInPath(path string) (from, to int, ok bool) {
	end := strings.IndexByte(path, '?')
	if end < 0 {
		end = len(path)
	}
	clean := path[:end]
	last := strings.LastIndexByte(clean, '/') + 1
	if model, method := splitMethod(clean[last:]); method != "" && model != "" {
		if _, known := byMethod(clean, clean[last:]); known {
			return last, last + len(model), true
		}
	}
	const deployments = "/deployments/"
	if i := strings.Index(clean, deployments); i >= 0 && strings.Contains(clean[:i]+"/", "/openai/") {
		from = i + len(deployments)
		if n := strings.IndexByte(clean[from:], '/'); n > 0 {
			return from, from + n, true
		}
	}
	return 0, 0, false
}

// unescape decodes a path segment; a broken one stays as it is.
func unescape(segment string) string {
	if s, err := url.PathUnescape(segment); err == nil {
		return s
	}
	return segment
}

// escape encodes a model for a path segment. Unlike url.PathEscape it encodes the colon, behind which these APIs expect
// a method.
func escape(model string) string {
	return strings.ReplaceAll(url.PathEscape(model), ":", "%3A")
}
