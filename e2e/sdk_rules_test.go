package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sdkComplete are the finish reasons that say an answer is whole, in every spelling of the clients.
var sdkComplete = []string{"stop", "completed", "end_turn", "stop_sequence", "tool_calls", "tool-calls", "tool_use", "function_call", "STOP", "COMPLETE", "TOOL_CALL"}

// sdkShort are the finish reasons of an answer that ended before it was whole.
var sdkShort = []string{"length", "incomplete max_output_tokens", "max_tokens", "MAX_TOKENS"}

// sdkBroken is what a client says that has met bytes it cannot read.
var sdkBroken = regexp.MustCompile(`(?i)JSONDecode|SyntaxError|TypeError|AttributeError|KeyError|IndexError|ZodError|ValidationError|TypeValidation|ParseError|` +
	`not subscriptable|not iterable|cannot read prop|is not a function|invalid JSON|unexpected (end|EOF|token)|parsing response|unmarshal|invalid stream chunk|accumulator refuses|terminated`)

// sdkErrors are the classes by which a client reports what the API says, by the first word of its rows. The AI SDK hands
// out the error object of a stream as it came.
var sdkErrors = map[string]*regexp.Regexp{
	"openai-python":    regexp.MustCompile(`^(APIError|InternalServerError): `),
	"anthropic-python": regexp.MustCompile(`^(APIStatusError|InternalServerError|GatewayTimeoutError|ServiceUnavailableError): `),
	"openai-node":      regexp.MustCompile(`^(APIError|InternalServerError): `),
	"anthropic-ts":     regexp.MustCompile(`^(APIError|InternalServerError|GatewayTimeoutError): `),
	"ai":               regexp.MustCompile(`^(APICallError: |object: \{.*"message":)`),
	"langchain-js":     regexp.MustCompile(`^(APIError|InternalServerError): `),
	"ollama-js":        regexp.MustCompile(`^(Error|ResponseError): `),
	"openai-go":        regexp.MustCompile(`^(\*ssestream\.StreamError|\*apierror\.Error): `),
	"anthropic-go":     regexp.MustCompile(`^\*apierror\.Error: `),
	"genai-go":         regexp.MustCompile(`^genai\.APIError: `),
}

// sdkImposed are the exceptions that a client raises for every answer that ended at a length limit, whoever sent it.
var sdkImposed = map[string]string{
	"openai-python chat .stream":      "LengthFinishReasonError: Could not parse response content as the length limit was reached",
	"openai-python responses .stream": "RuntimeError: Didn't receive a `response.completed` event.",
}

// checkSDK holds one cell of the table to the rules.
func checkSDK(t *testing.T, row sdkRow, sc sdkScenario, s sdkSeen) {
	t.Helper()
	if s.Row == "" {
		t.Errorf("%s, %s: no result", row.name, sc.name)
		return
	}
	if sc.name == "normal" {
		if s.Text != sdkWhole || s.Tool != "" || s.Error != "" || !slices.Contains(sdkComplete, s.Finish) {
			t.Errorf("%v: not a whole answer", s)
		}
		return
	}
	if slices.Contains(sdkComplete, s.Finish) {
		t.Errorf("%v: an answer that is not whole passes as whole", s)
	}
	if sdkBroken.MatchString(s.Error) {
		t.Errorf("%v: the client met bytes it cannot read", s)
	}
	switch text, fails := sdkExpected(row, sc); {
	case s.Text != text:
		t.Errorf("%v: want the text %q", s, text)
	case fails:
		checkSDKError(t, row, sc, s)
	case s.Error == "" && !slices.Contains(sdkShort, s.Finish):
		t.Errorf("%v: neither cut short nor failed", s)
	case s.Error != "" && s.Error != sdkImposed[row.name]:
		t.Errorf("%v: an exception that the client does not impose", s)
	}
}

// sdkExpected is the text a client has when an answer is not whole, and whether it must raise an error of the API.
func sdkExpected(row sdkRow, sc sdkScenario) (text string, fails bool) {
	switch sc.name {
	case "upstream error frame":
		text, fails = sdkPartial, true
	case "cut inside tool arguments": // in Gemini and Ollama a call is whole or absent, and completions have none
		fails = row.dialect != &sdkGemini && row.dialect != &sdkOllama && row.dialect != &sdkCompletions
	default:
		text = sdkPartial
	}
	if !row.stream {
		return "", true
	}
	return text, fails
}

func checkSDKError(t *testing.T, row sdkRow, sc sdkScenario, s sdkSeen) {
	t.Helper()
	client, _, _ := strings.Cut(row.name, " ")
	if !sdkErrors[client].MatchString(s.Error) || (s.Finish != "" && s.Finish != "error") {
		t.Errorf("%v: want an error by which the client reports what the API says", s)
	}
	if sc.name == "cut inside tool arguments" && row.stream && (s.Tool != sdkArgs || !strings.Contains(s.Error, "upstream_truncated")) {
		t.Errorf("%v: want the arguments so far and the reason", s)
	}
	if sc.name == "upstream error frame" && !strings.Contains(s.Error, "engine failed") && client != "openai-go" {
		t.Errorf("%v: the upstream's own words are lost", s) // of a status, openai-go prints no body
	}
}
