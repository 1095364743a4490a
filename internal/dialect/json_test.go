package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// chatJSON is a chat completion with one choice.
func chatJSON(message, finish string) string {
	return `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":` + message + `,"finish_reason":"` + finish + `"}],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}`
}

func TestJudgeJSON(t *testing.T) {
	nest := strings.Repeat("[", 1<<20)
	for _, c := range []struct {
		name   string
		id     ID
		status int
		body   string
		want   outcome.Outcome
	}{
		// Answers at 200.
		{"C89 content null", Chat, 200, chatJSON(`{"role":"assistant","content":null}`, "stop"), outcome.Empty},
		{"C89 tool calls", Chat, 200, chatJSON(`{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}`, "tool_calls"), outcome.OK},
		{"C89 refusal", Chat, 200, chatJSON(`{"role":"assistant","content":null,"refusal":"I can't"}`, "stop"), outcome.Refusal},
		{"C90 white space", Chat, 200, chatJSON(`{"role":"assistant","content":" \n\u00a0\u3000　"}`, "stop"), outcome.Empty},
		{"C91 parts", Chat, 200, chatJSON(`{"role":"assistant","content":[{"type":"text","text":"hi"}]}`, "stop"), outcome.OK},
		{"C91 one token of nothing", Chat, 200, chatJSON(`{"role":"assistant","content":""}`, "length"), outcome.Empty},
		{"image part", Chat, 200, chatJSON(`{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"data:"}}]}`, "stop"), outcome.OK},
		{"refusal part", Chat, 200, chatJSON(`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, "stop"), outcome.Refusal},
		{"audio", Chat, 200, chatJSON(`{"role":"assistant","content":null,"audio":{"id":"a","data":"UklG"}}`, "stop"), outcome.OK},
		{"C93 reasoning only", Chat, 200, chatJSON(`{"role":"assistant","content":"","reasoning":"42"}`, "stop"), outcome.Empty},
		{"reasoning at the limit", Chat, 200, chatJSON(`{"role":"assistant","content":"","reasoning_content":"42"}`, "length"), outcome.Capped},
		{"no choices", Chat, 200, `{"object":"chat.completion","choices":[]}`, outcome.Empty},
		{"capped", Chat, 200, chatJSON(`{"content":"x"}`, "length"), outcome.Capped},
		{"filtered", Chat, 200, chatJSON(`{"content":"x"}`, "content_filter"), outcome.Refusal},
		{"C01 abort", Chat, 200, chatJSON(`{"content":"x"}`, "abort"), outcome.Evicted},
		{"C01 error", Chat, 200, chatJSON(`{"content":"x"}`, "error"), outcome.UpstreamError},
		{"unknown reason", Chat, 200, chatJSON(`{"content":"x"}`, "repetition"), outcome.Capped},
		{"ok", Chat, 200, chatJSON(`{"content":"x"}`, "stop"), outcome.OK},
		{"no reason", Chat, 200, `{"choices":[{"message":{"content":"x"},"finish_reason":null}]}`, outcome.OK},
		{"completion", Completions, 200, `{"object":"text_completion","choices":[{"index":0,"text":"x","finish_reason":"stop"}]}`, outcome.OK},
		{"empty completion", Completions, 200, `{"object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"stop"}]}`, outcome.Empty},
		{"response", Responses, 200, `{"object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`, outcome.OK},
		{"C23 response filtered", Responses, 200, `{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`, outcome.Refusal},
		{"response capped", Responses, 200, `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning","summary":[{"text":"x"}]}]}`, outcome.Capped},
		{"response failed", Responses, 200, `{"status":"failed","error":{"code":"server_error","message":"x"},"output":[]}`, outcome.UpstreamError},
		{"response cancelled", Responses, 200, `{"status":"cancelled","output":[]}`, outcome.Evicted},
		{"response refused", Responses, 200, `{"status":"completed","output":[{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]}`, outcome.Refusal},
		{"response with a call", Responses, 200, `{"status":"completed","output":[{"type":"function_call","name":"f","arguments":"{}"}]}`, outcome.OK},
		{"response empty", Responses, 200, `{"status":"completed","output":[]}`, outcome.Empty},
		{"response accepted for later", Responses, 200, `{"status":"queued","output":[]}`, outcome.OK},
		{"message", Anthropic, 200, `{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}`, outcome.OK},
		{"message capped", Anthropic, 200, `{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"max_tokens"}`, outcome.Capped},
		{"message refused", Anthropic, 200, `{"type":"message","content":[],"stop_reason":"refusal"}`, outcome.Refusal},
		{"message empty", Anthropic, 200, `{"type":"message","content":[],"stop_reason":"end_turn"}`, outcome.Empty},
		{"message of thoughts", Anthropic, 200, `{"type":"message","content":[{"type":"thinking","thinking":"x"}],"stop_reason":"end_turn"}`, outcome.Empty},
		{"message with a call", Anthropic, 200, `{"type":"message","content":[{"type":"tool_use","input":{}}],"stop_reason":"tool_use"}`, outcome.OK},
		{"C29 Gemini capped", Gemini, 200, `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"MAX_TOKENS"}]}`, outcome.Capped},
		{"C95 Gemini safety", Gemini, 200, `{"candidates":[{"finishReason":"SAFETY"}]}`, outcome.Refusal},
		{"C95 Gemini blocked", Gemini, 200, `{"promptFeedback":{"blockReason":"SAFETY"}}`, outcome.Refusal},
		{"Gemini without parts", Gemini, 200, `{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}]}`, outcome.Empty},
		{"Gemini without candidates", Gemini, 200, `{"candidates":[]}`, outcome.Empty},
		{"Gemini in pieces", Gemini, 200, `[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]},` + "\r\n" + `{"candidates":[{"finishReason":"STOP"}]}]`, outcome.OK},
		{"Gemini in pieces, cut", Gemini, 200, `[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}]`, outcome.Truncated},
		{"Ollama", Ollama, 200, `{"model":"m","message":{"content":"x"},"done":true,"done_reason":"stop"}`, outcome.OK},
		{"Ollama empty", Ollama, 200, `{"model":"m","response":"","done":true,"done_reason":"stop"}`, outcome.Empty},
		{"another service's at Ollama's path", Ollama, 200, `{"done":true,"items":[1]}`, outcome.OK},
		{"a list", Chat, 200, `{"object":"list","data":[]}`, outcome.OK},
		{"any object", Generic, 200, `{}`, outcome.OK},
		{"the stub's", Chat, 200, `{}`, outcome.OK},
		{"nothing", Chat, 200, ``, outcome.Empty},
		{"null", Generic, 200, ` null `, outcome.Empty},
		{"a page", Chat, 200, `<!doctype html><html></html>`, outcome.UpstreamError},
		{"half an object", Chat, 200, `{"choices":[{"mess`, outcome.Truncated},
		{"half an object that ends in a brace", Chat, 200, `{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}`, outcome.Truncated},
		{"…in a bracket", Generic, 200, `{"a":[1,2]`, outcome.Truncated},
		{"…behind an escape", Generic, 200, `{"a":"}\"}`, outcome.Truncated},
		{"a tail of JSONP", Chat, 200, `{"a":1};`, outcome.OK},
		{"two documents", Generic, 200, "{\"a\":1}\n{\"b\":2}\n", outcome.OK},
		{"a list of any kind", Ollama, 200, `[1,2]`, outcome.OK},
		{"nested deeper than is read", Chat, 200, strings.Repeat("[", 1<<11) + strings.Repeat("]", 1<<11), outcome.OK},
		{"NaN", Chat, 200, `{"choices":[{"message":{"content":"x"},"logprobs":NaN}]}`, outcome.OK},
		{"nested without end", Chat, 200, nest, outcome.Truncated},

		// Errors at 200.
		{"error object", Chat, 200, `{"error":{"message":"x","code":503}}`, outcome.Overloaded},
		{"object error", Chat, 200, `{"object":"error","message":"x","type":"BadRequestError","code":400}`, outcome.BadRequest},
		{"error null", Chat, 200, `{"error":null,"choices":[{"message":{"content":"x"}}]}`, outcome.OK},
		{"problem", Generic, 200, `{"status":429,"title":"Too Many Requests","detail":"x"}`, outcome.Throttled},
		{"C37 too long", Chat, 200, `{"error":{"message":"prompt is too long","code":400}}`, outcome.BadRequest},
		{"queue full, no code", Chat, 200, `{"error":{"message":"The request queue is full."}}`, outcome.Overloaded},
		{"error text", Ollama, 200, `{"error":"an error was encountered"}`, outcome.UpstreamError},

		// Statuses of failure.
		{"C83 insufficient quota", Chat, 429, `{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}`, outcome.Quota},
		{"C83 code null", Chat, 429, `{"error":{"code":null,"type":"insufficient_quota"}}`, outcome.Quota},
		{"C83 type null", Chat, 429, `{"error":{"code":"insufficient_quota","type":null}}`, outcome.Quota},
		{"C83 credit balance", Chat, 429, `{"error":{"code":"credit_balance_exhausted"}}`, outcome.Quota},
		{"C83 project spend limit", Chat, 429, `{"error":{"code":"project_spend_limit_exceeded","type":"tokens"}}`, outcome.Quota},
		{"C83 organization limit", Chat, 429, `{"error":{"code":"organization_usage_limit_exceeded"}}`, outcome.Quota},
		{"C83 billing", Anthropic, 402, `{"type":"error","error":{"type":"billing_error","message":"x"}}`, outcome.Quota},
		{"402 alone", Generic, 402, `{}`, outcome.Quota},
		{"Anthropic credit", Anthropic, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}`, outcome.Quota},
		{"rate limit", Chat, 429, `{"error":{"code":"rate_limit_exceeded","type":"tokens"}}`, outcome.Throttled},
		{"the article's throttle", Generic, 429, `{"error":"rate_limit_exceeded"}`, outcome.Throttled},
		{"Azure", Chat, 429, `{"error":{"code":"429","message":"Requests to…"}}`, outcome.Throttled},
		{"Azure 408", Chat, 408, `{"error":{"code":"Timeout","message":"x"}}`, outcome.Overloaded},
		{"Azure filter", Chat, 400, `{"error":{"code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, outcome.Refusal},
		{"Anthropic 529", Anthropic, 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, outcome.Overloaded},
		{"Anthropic 500", Anthropic, 500, `{"type":"error","error":{"type":"api_error","message":"x"}}`, outcome.UpstreamError},
		{"Anthropic 504", Anthropic, 504, `{"type":"error","error":{"type":"timeout_error","message":"x"}}`, outcome.UpstreamError},
		{"C87 Bedrock 400", Generic, 400, `{"__type":"com.amazon.coral.service#ThrottlingException","message":"Too many requests"}`, outcome.Throttled},
		{"C87 Bedrock 500", Chat, 500, `{"detail":"An error occurred (ThrottlingException) when calling the Converse operation"}`, outcome.Throttled},
		{"Bedrock quota", Generic, 400, `{"__type":"ServiceQuotaExceededException"}`, outcome.Quota},
		{"Gemini exhausted", Gemini, 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x","details":[{"retryDelay":"34s"}]}}`, outcome.Throttled},
		{"Gemini daily", Gemini, 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}`, outcome.Quota},
		{"Gemini in an array", Gemini, 503, `[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, outcome.Overloaded},
		{"Gemini argument", Gemini, 400, `{"error":{"code":400,"status":"INVALID_ARGUMENT"}}`, outcome.BadRequest},
		{"Gemini late", Gemini, 504, `{"error":{"code":504,"status":"DEADLINE_EXCEEDED"}}`, outcome.UpstreamError},
		{"TGI overloaded", Generic, 429, `{"error":"Model is overloaded","error_type":"overloaded"}`, outcome.Overloaded},
		{"TGI generation", Generic, 424, `{"error":"x","error_type":"generation"}`, outcome.UpstreamError},
		{"TGI validation", Generic, 422, `{"error":"x","error_type":"validation"}`, outcome.BadRequest},
		{"llama.cpp loading", Chat, 503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, outcome.Overloaded},
		{"llama.cpp context", Chat, 400, `{"error":{"message":"x","type":"exceed_context_size_error","code":400}}`, outcome.BadRequest},
		{"Ollama busy", Ollama, 503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, outcome.Overloaded},
		{"the stub's eviction", Chat, 503, `{"error":{"type":"service_unavailable","code":"evicted"}}`, outcome.Evicted},
		{"the stub's failure", Chat, 500, `{"error":{"type":"server_error","code":"internal_error"}}`, outcome.UpstreamError},
		{"no JSON", Chat, 502, `<html>`, outcome.UpstreamError},
		{"no body", Chat, 503, ``, outcome.Overloaded},
		{"scalar", Chat, 404, `"x"`, outcome.BadRequest},
		{"code that is no status", Chat, 400, `{"code":70001,"message":"x"}`, outcome.BadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := JudgeJSON(c.id, c.status, []byte(c.body)); got.Class != c.want || got.Provisional {
				t.Errorf("got %s (%+v), want %s", got.Class, got, c.want)
			}
		})
	}
}

func TestAnErrorAloneIsToldFromAnAnswerWithAnError(t *testing.T) {
	for _, c := range []struct {
		id   ID
		body string
		want bool
	}{
		{Chat, `{"error":{"message":"x","code":503}}`, true},
		{Chat, `{"error":{"message":"x"},"choices":null}`, true},
		{Chat, `{"error":{"message":"x"},"choices":[]}`, false},
		{Chat, `{"object":"list","data":[]}`, false},
		{Chat, `{"error":{"message":"x"`, false},
		{Completions, `{"object":"error","message":"x","code":400}`, true},
		{Responses, `{"error":{"message":"x"}}`, true},
		{Responses, `{"object":"response","status":"failed","error":{"code":"server_error","message":"x"},"output":[]}`, false},
		{Anthropic, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, true},
		{Anthropic, `{"type":"message","content":[]}`, false},
		{Gemini, `{"error":{"code":503,"status":"UNAVAILABLE"}}`, true},
		{Ollama, `{"error":"x"}`, true},
		{Generic, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"x"}}`, false},
	} {
		if got := ErrorAlone(c.id, []byte(c.body)); got != c.want {
			t.Errorf("%s %s: got %t", c.id, c.body, got)
		}
	}
}

func TestJudgeJSONReadsUsageAndReason(t *testing.T) {
	for _, c := range []struct {
		id     ID
		body   string
		finish string
	}{
		{Chat, chatJSON(`{"content":"x"}`, "stop"), "stop"},
		{Responses, `{"status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":5}}`, "completed"},
		{Anthropic, `{"content":[],"stop_reason":"end_turn","usage":{"input_tokens":1,"cache_read_input_tokens":2,"output_tokens":5}}`, "end_turn"},
		{Gemini, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"thoughtsTokenCount":1}}`, "STOP"},
		{Ollama, `{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":5}`, "stop"},
	} {
		got := JudgeJSON(c.id, 200, []byte(c.body))
		if got.Usage != (Usage{3, 5}) || got.Finish != c.finish || !got.Complete || got.Error {
			t.Errorf("%s: got %+v", c.id, got)
		}
	}
}

func TestByDroppedReason(t *testing.T) {
	for value, want := range map[string]outcome.Outcome{
		"rejected-saturated": outcome.Overloaded, DroppedTTL: outcome.Overloaded, "rejected-context-cancelled": outcome.ClientAborted,
		"rejected-no-endpoints": outcome.Overloaded, "rejected-shutting-down": outcome.Overloaded, "evicted": outcome.Evicted,
		"evicted-queue-pressure": outcome.Evicted, "evicted-priority": outcome.Evicted, "evicted-foo": outcome.Evicted, " Evicted ": outcome.Evicted,
		"": outcome.Unknown, "rejected": outcome.Unknown, "else": outcome.Unknown,
	} {
		if got, ok := ByDroppedReason(value); got != want || ok != (want != outcome.Unknown) {
			t.Errorf("C77 C78 %q: got %s, %t", value, got, ok)
		}
	}
}

func TestByErrorType(t *testing.T) {
	if got, ok := ByErrorType("ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/"); got != outcome.Throttled || !ok {
		t.Errorf("C87: got %s, %t", got, ok)
	}
	if got, ok := ByErrorType("SomethingElse"); got != outcome.Unknown || ok {
		t.Errorf("got %s, %t", got, ok)
	}
}

// TestErrorBodies holds every kind in every dialect to the shapes of docs/endings.md.
func TestErrorBodies(t *testing.T) {
	rows := []struct {
		what   What
		reason string
		plain  string
		openAI string
		claude string
	}{
		{Capacity, "queue_full", `{"error":"capacity","reason":"queue_full"}`,
			`{"error":{"message":"capacity: queue_full","type":"capacity","param":null,"code":"queue_full"},"reason":"queue_full"}`,
			`{"type":"error","error":{"type":"overloaded_error","message":"capacity: queue_full"},"reason":"queue_full"}`},
		{Deadline, "slow_first_token", `{"error":"deadline","reason":"slow_first_token"}`,
			`{"error":{"message":"deadline: slow_first_token","type":"deadline","param":null,"code":"slow_first_token"},"reason":"slow_first_token"}`,
			`{"type":"error","error":{"type":"overloaded_error","message":"deadline: slow_first_token"},"reason":"slow_first_token"}`},
		{Upstream, "upstream_truncated", `{"error":"upstream","reason":"upstream_truncated"}`,
			`{"error":{"message":"upstream: upstream_truncated","type":"upstream","param":null,"code":"upstream_truncated"},"reason":"upstream_truncated"}`,
			`{"type":"error","error":{"type":"overloaded_error","message":"upstream: upstream_truncated"},"reason":"upstream_truncated"}`},
		{Conflict, "in_flight", `{"error":"conflict","reason":"in_flight"}`,
			`{"error":{"message":"conflict: in_flight","type":"conflict","param":null,"code":"in_flight"},"reason":"in_flight"}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"conflict: in_flight"},"reason":"in_flight"}`},
		{Idempotency, "payload_mismatch", `{"error":"idempotency","reason":"payload_mismatch"}`,
			`{"error":{"message":"idempotency: payload_mismatch","type":"idempotency","param":null,"code":"payload_mismatch"},"reason":"payload_mismatch"}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"idempotency: payload_mismatch"},"reason":"payload_mismatch"}`},
		{BadRequest, "idempotency_key", `{"error":"bad_request","reason":"idempotency_key"}`,
			`{"error":{"message":"bad_request: idempotency_key","type":"bad_request","param":null,"code":"idempotency_key"},"reason":"idempotency_key"}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"bad_request: idempotency_key"},"reason":"idempotency_key"}`},
	}
	if len(rows) != int(numWhats) {
		t.Errorf("%d kinds of error, want %d", len(rows), numWhats)
	}
	for _, r := range rows {
		want := map[ID]string{Generic: r.plain, Chat: r.openAI, Completions: r.openAI, Responses: r.openAI, Anthropic: r.claude, Gemini: r.plain, Ollama: r.plain}
		for _, id := range IDs() {
			if got := string(ErrorBody(id, r.what, r.reason)); got != want[id] {
				t.Errorf("%s %s: got %s, want %s", id, r.what, got, want[id])
			}
		}
	}
	for _, id := range append(IDs(), 200) {
		for what := range numWhats + 2 {
			if b := ErrorBody(id, what, "x"); !json.Valid(b) {
				t.Errorf("%s %s: %s is no JSON", id, what, b)
			}
		}
	}
}
