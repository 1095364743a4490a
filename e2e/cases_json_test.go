package e2e

import (
	"testing"
)

// jsonCase is a whole answer that is judged and passed.
type jsonCase struct {
	id, path, body, outcome string
	request                 string // default {}
	status                  int
	header                  map[string]string
	check                   func(t *testing.T, a answer)
}

func jsonCases() []jsonCase {
	message := func(m string) string { return `{"choices":[{"index":0,"message":` + m + `,"finish_reason":"stop"}]}` }
	noRetry := func(t *testing.T, a answer) {
		checkHeader(t, a, "x-should-retry", "false")
		checkHeader(t, a, "retry-after", "")
	}
	return []jsonCase{
		{id: "C29", path: "/v1beta/models/m:generateContent", body: `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"MAX_TOKENS"}]}`, outcome: "capped"},
		{id: "C57", body: message(`{"role":"assistant","content":"日本語\u0000"}`), outcome: "ok"},
		{id: "C77", status: 429, body: "no", header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "rejected-saturated"}, outcome: "overloaded"},
		{id: "C77", status: 429, body: "no", header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "evicted-foo"}, outcome: "evicted"},
		{id: "C77", status: 429, body: "no", header: map[string]string{"content-type": "text/plain"}, outcome: "throttled"},
		{id: "C78", status: 503, body: "no", header: map[string]string{"content-type": "text/plain", "x-llm-d-request-dropped-reason": "rejected-no-endpoints"}, outcome: "overloaded",
			check: func(t *testing.T, a answer) { checkHeader(t, a, "retry-after", "") }},
		{id: "C83", status: 429, body: `{"error":{"message":"x","code":"insufficient_quota","type":"insufficient_quota"}}`, header: map[string]string{"retry-after": "20"}, outcome: "quota", check: noRetry},
		{id: "C83", status: 429, body: `{"error":{"message":"x","code":null,"type":"insufficient_quota"}}`, header: map[string]string{"retry-after": "20"}, outcome: "quota", check: noRetry},
		{id: "C85", status: 429, body: `{"error":{"message":"x"}}`, header: map[string]string{"retry-after": "1382400"}, outcome: "throttled", check: noRetry},
		{id: "C87", status: 400, body: `{"message":"Too many requests"}`, header: map[string]string{"x-amzn-errortype": "ThrottlingException"}, outcome: "throttled"},
		{id: "C89", body: message(`{"role":"assistant","content":null}`), outcome: "empty"},
		{id: "C89", body: message(`{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]}`), outcome: "ok"},
		{id: "C89", body: message(`{"role":"assistant","content":null,"refusal":"I can't"}`), outcome: "refusal"},
		{id: "C91", body: message(`{"role":"assistant","content":[{"type":"text","text":"hi"}]}`), outcome: "ok"},
		{id: "C91", request: `{"max_tokens":1}`, body: `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"length"}]}`, outcome: "empty"},
		{id: "C93", body: `{"choices":[{"index":0,"message":{"role":"assistant","content":"","reasoning":"42"},"finish_reason":"stop"}],"usage":{"completion_tokens":50}}`, outcome: "empty"},
		{id: "C95", path: "/v1beta/models/m:generateContent", body: `{"promptFeedback":{"blockReason":"SAFETY"}}`, outcome: "refusal"},
	}
}
