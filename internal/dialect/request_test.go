package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFactsOfARequest(t *testing.T) {
	const gemini = "/v1beta/models/gemini-2.5-flash"
	for _, c := range []struct {
		name         string
		id           ID
		path, accept string
		body         string
		want         Facts
	}{
		{"chat", Chat, "/v1/chat/completions", "", `{"model":"m","temperature":0,"messages":[]}`, Facts{Object: true, Model: "m"}},
		{"a stream with usage", Chat, "", "", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, Facts{Object: true, Stream: true, IncludeUsage: true, Model: "m"}},
		{"usage of no stream", Chat, "", "", `{"stream":false,"stream_options":{"include_usage":true}}`, Facts{Object: true}},
		{"an event stream is accepted", Chat, "", "text/event-stream", `{}`, Facts{Object: true}},
		{"of a service nobody knows", Generic, "/x", "application/json, Text/Event-Stream", `{}`, Facts{Object: true, Stream: true}},
		{"asked for in the body", Generic, "/x", "", `{"stream":true}`, Facts{Object: true, Stream: true}},
		{"no JSON", Chat, "", "", `{"stream":true`, Facts{}},
		{"a list", Chat, "", "", `[{"stream":true}]`, Facts{}},
		{"no body", Gemini, gemini + ":streamGenerateContent?alt=sse", "", ``, Facts{Stream: true, Model: "gemini-2.5-flash"}},
		{"a key twice", Chat, "", "", `{"model":"a","stream":false,"\u006dodel":"b","stream":true}`, Facts{Stream: true, Model: "b"}},
		{"Azure", Chat, "/openai/deployments/gpt%2D4o/chat/completions?api-version=1", "", `{"model":"ignored"}`, Facts{Object: true, Model: "gpt-4o"}},
		{"Gemini", Gemini, gemini + ":generateContent", "", `{"stream":true}`, Facts{Object: true, Model: "gemini-2.5-flash"}},
		{"Gemini streams", Gemini, gemini + "%3AstreamGenerateContent?key=k&alt=SSE", "", `{}`, Facts{Object: true, Stream: true, Model: "gemini-2.5-flash"}},
		{"Gemini streams an array", Gemini, gemini + ":streamGenerateContent?alt=json", "", `{}`, Facts{Object: true, Model: "gemini-2.5-flash"}},
		{"Gemini samples", Gemini, gemini + ":generateContent", "", `{"generationConfig":{"temperature":0.5}}`, Facts{Object: true, Model: "gemini-2.5-flash", Sampled: true}},
		{"Vertex AI", Anthropic, "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict", "", `{"stream":true}`, Facts{Object: true, Stream: true, Model: "claude@1"}},
		{"Ollama", Ollama, "/api/chat", "", `{"model":"m"}`, Facts{Object: true, Stream: true, Model: "m"}},
		{"Ollama told not to stream", Ollama, "/api/chat", "", `{"stream":false,"options":{"temperature":0.1}}`, Facts{Object: true, Sampled: true}},
	} {
		if d := cmp.Diff(c.want, ReadRequest(c.id, c.path, c.accept, []byte(c.body))); d != "" {
			t.Errorf("%s: want -, got +:\n%s", c.name, d)
		}
	}
}

func TestWhatKeepsAnAnswerOutOfTheStore(t *testing.T) {
	for _, c := range []struct {
		id         ID
		body, want string
	}{
		{Chat, `{"store":true}`, "store"}, {Chat, `{"store":false}`, ""}, {Chat, `{"store":null}`, ""}, {Responses, `{}`, ""},
		{Responses, `{"previous_response_id":"r"}`, "previous_response_id"}, {Responses, `{"previous_response_id":null}`, ""},
		{Responses, `{"conversation":"c"}`, "conversation"}, {Responses, `{"conversation":{"id":"c"}}`, "conversation"},
		{Generic, `{"conversation":[{"text":"hi"}]}`, ""}, {Responses, `{"background":true}`, "background"}, {Responses, `{"background":false}`, ""},
		{Chat, `{"tools":[{"type":"function","function":{"name":"search"}}]}`, ""}, {Chat, `{"web_search_options":{}}`, "server_tools"},
		{Responses, `{"tools":[{"type":"function","name":"f"},{"type":"custom","name":"g"}]}`, ""},
		{Responses, `{"tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`, "server_tools"},
		{Responses, `{"tools":[{"type":"mcp","server_url":"u"}]}`, "server_tools"}, {Responses, `{"tools":[{"type":"code_interpreter"}]}`, "server_tools"},
		{Anthropic, `{"tools":[{"name":"code_execution","input_schema":{}}]}`, ""}, {Anthropic, `{"tools":[{"type":"bash_20250124","name":"bash"}]}`, ""},
		{Anthropic, `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, "server_tools"},
		{Anthropic, `{"mcp_servers":[{"url":"u"}]}`, "server_tools"}, {Anthropic, `{"mcp_servers":[]}`, ""}, {Anthropic, `{"container":"c"}`, "server_tools"},
		{Gemini, `{"tools":[{"functionDeclarations":[{"name":"f"}]}]}`, ""}, {Gemini, `{"tools":[{"googleSearch":{}}]}`, "server_tools"},
		{Gemini, `{"tools":[{"code_execution":{}}]}`, "server_tools"},
	} {
		if got := ReadRequest(c.id, "", "", []byte(c.body)).Unkept; got != c.want {
			t.Errorf("%s %s: %q, want %q", c.id, c.body, got, c.want)
		}
	}
}

func TestATemperatureAboveZeroIsSampled(t *testing.T) {
	for v, want := range map[string]bool{
		`0`: false, `0.0`: false, `0e5`: false, `-1`: false, `null`: false, `"warm"`: false, `true`: false, `[1]`: false,
		`1`: true, `0.7`: true, `1e-9`: true, `"0.7"`: true, `"0"`: false,
	} {
		if got := ReadRequest(Chat, "", "", []byte(`{"temperature":`+v+`}`)).Sampled; got != want {
			t.Errorf("temperature %s: %t", v, got)
		}
	}
}

// TestPromptTextIsWhatAReaderWrote marks every string of a request that is prompt.
func TestPromptTextIsWhatAReaderWrote(t *testing.T) {
	for _, c := range []struct {
		id         ID
		body, want string
	}{
		{Chat, `{"model":"-","messages":[{"role":"-","content":"P"},{"content":[{"type":"-","text":"P"},{"image_url":{"url":"-"}}],"tool_calls":[{"function":{"arguments":"-"}}]}]}`, ""},
		{Completions, `{"prompt":"P","model":"-"}`, ""}, {Completions, `{"prompt":["P","P"]}`, ""},
		{Responses, `{"instructions":"P","input":"P","user":"-"}`, ""},
		{Responses, `{"input":[{"role":"-","content":"P"},{"content":[{"type":"-","text":"P"}]},{"arguments":"-"}]}`, ""},
		{Anthropic, `{"system":"P","messages":[{"role":"-","content":"P"},{"content":[{"type":"-","text":"P"},{"input":{"text":"-"}}]}]}`, ""},
		{Anthropic, `{"system":[{"type":"-","text":"P"}]}`, ""},
		{Gemini, `{"contents":[{"role":"-","parts":[{"text":"P"},{"inlineData":{"data":"-"}}]}],"systemInstruction":{"parts":[{"text":"P"}]}}`, ""},
		{Ollama, `{"model":"-","prompt":"P","system":"P","messages":[{"content":"P","images":["-"]}]}`, ""},
		{Generic, `{"prompt":"P","input":"P","text":"P","query":"P","other":"-","messages":[{"content":"P"}],"a":{"prompt":"-"}}`, ""},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.body), &v); err != nil {
			t.Fatal(err)
		}
		is := PromptText(c.id)
		walkStrings(v, nil, func(path []string, s string) {
			if is(path) != (s == "P") {
				t.Errorf("%s: %s in %s is prompt: %t", c.id, strings.Join(path, "/"), c.body, is(path))
			}
		})
	}
	if PromptText(Chat)(nil) {
		t.Error("a document that is a string is prompt")
	}
}

func walkStrings(v any, path []string, visit func([]string, string)) {
	switch v := v.(type) {
	case string:
		visit(path, v)
	case []any:
		for _, e := range v {
			walkStrings(e, append(path, "#"), visit)
		}
	case map[string]any:
		for k, e := range v {
			walkStrings(e, append(path, k), visit)
		}
	}
}

func TestAnotherModelIsPutWhereTheDialectHasIt(t *testing.T) {
	const gemini, vertex = "/v1beta/models/big:generateContent?key=k", "/v1/projects/p/publishers/anthropic/models/big@1%3ArawPredict"
	for _, c := range []struct {
		name       string
		id         ID
		path, body string
		model      string
		newPath    string
		newBody    string
		ok         bool
	}{
		{"in the body", Chat, "/v1/chat/completions", `{ "model" : "big", "seed":1.0}`, "llama:8b", "/v1/chat/completions", `{ "model" : "llama:8b", "seed":1.0}`, true},
		{"as it is", Chat, "/v1/chat/completions", `{"model":"big"}`, "big", "/v1/chat/completions", "", true},
		{"where none is named", Chat, "/v1/chat/completions", `{"seed":1}`, "small", "/v1/chat/completions", `{"seed":1,"model":"small"}`, true},
		{"not twice", Chat, "/c", `{"model":"a","model":"b"}`, "small", "/c", "", false},
		{"not in what is no JSON", Chat, "/c", `--form`, "small", "/c", "", false},
		{"not in an unknown request that has none", Generic, "/c", `{}`, "small", "/c", "", false},
		{"in an unknown request", Generic, "/c", `{"model":"big"}`, "small", "/c", `{"model":"small"}`, true},
		{"Gemini", Gemini, gemini, `{"model":"x"}`, "a/b:c", "/v1beta/models/a%2Fb%3Ac:generateContent?key=k", "", true},
		{"Gemini as it is", Gemini, gemini, `{}`, "big", gemini, "", true},
		{"Gemini without a model in its path", Gemini, "/x", `{"model":"x"}`, "small", "/x", "", false},
		{"Vertex AI", Anthropic, vertex, `{}`, "small@2", "/v1/projects/p/publishers/anthropic/models/small@2%3ArawPredict", "", true},
		{"Azure", Chat, "/openai/deployments/big/chat/completions?api-version=1", `{"model":"x"}`, "small", "/openai/deployments/small/chat/completions?api-version=1", "", true},
		{"a path that only looks like Azure's", Chat, "/k8s/deployments/big/chat/completions", `{"model":"x"}`, "small", "/k8s/deployments/big/chat/completions", `{"model":"small"}`, true},
	} {
		path, body, ok := RewriteModel(c.id, c.path, []byte(c.body), c.model)
		if path != c.newPath || string(body) != c.newBody || ok != c.ok || ok && c.newBody == "" && body != nil {
			t.Errorf("%s: got %s, %s, %t", c.name, path, body, ok)
		}
		if again := ReadRequest(c.id, path, "", body).Model; ok && body != nil && again != c.model {
			t.Errorf("%s: the model is now %q", c.name, again)
		}
	}
}

func FuzzAnyRequestIsSafe(f *testing.F) {
	f.Add(uint8(Chat), "/v1/chat/completions", "text/event-stream", []byte(`{"model":"m","tools":[{"type":"mcp"}],"stream":true}`), "small")
	f.Add(uint8(Gemini), "/models/m:streamGenerateContent?alt=sse", "", []byte(`{"generationConfig":{"temperature":1}}`), "a/b")
	f.Add(uint8(Chat), "/openai/deployments/%/x", "", []byte(`{"model":null}`), "")
	f.Fuzz(func(t *testing.T, which uint8, path, accept string, body []byte, model string) {
		id := ID(which) % numIDs
		ReadRequest(id, path, accept, body)
		newPath, newBody, ok := RewriteModel(id, path, body, model)
		switch {
		case !ok && (newPath != path || newBody != nil):
			t.Fatalf("refused, and still %q %q", newPath, newBody)
		case newBody != nil && !json.Valid(newBody):
			t.Fatalf("%q became %q", body, newBody)
		case ok && strings.ToValidUTF8(model, "") == model && model != "" && id != Gemini && newBody != nil && ReadRequest(id, newPath, accept, newBody).Model != model:
			t.Fatalf("%q names no %q", newBody, model)
		}
	})
}
