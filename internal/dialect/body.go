package dialect

// What is the kind of an error of ours. The zero value is a lack of capacity.
type What uint8

// The kinds of error.
const (
	Capacity    What = iota // 503 or 429: shed
	Deadline                // 504: too late before the first header
	Upstream                // 502: the upstream's answer was cut
	Conflict                // 409: the same key is in flight
	Idempotency             // 422: the same key with another payload
	BadRequest              // 400: a header of the request is malformed
	numWhats
)

var whatNames = [numWhats]string{"capacity", "deadline", "upstream", "conflict", "idempotency", "bad_request"}

// String is the word for the kind in the body.
func (w What) String() string {
	if w < numWhats {
		return whatNames[w]
	}
	return "invalid"
}

// anthropicTypes are the error types of the Anthropic API that say the same: those the caller's time or our capacity
// causes are overloads.
var anthropicTypes = [numWhats]string{"overloaded_error", "overloaded_error", "overloaded_error", "invalid_request_error", "invalid_request_error", "invalid_request_error"}

// ErrorBody is the JSON body of an error of ours, in the shape the dialect's SDKs read. reason is a name from a closed
// enum.
func ErrorBody(id ID, what What, reason string) []byte {
	kind := what.String()
	switch id {
	case Chat, Completions, Responses:
		return []byte(`{"error":{"message":"` + kind + `: ` + reason + `","type":"` + kind + `","param":null,"code":"` + reason + `"},"reason":"` + reason + `"}`)
	case Anthropic:
		t := anthropicTypes[min(what, numWhats-1)]
		return []byte(`{"type":"error","error":{"type":"` + t + `","message":"` + kind + `: ` + reason + `"},"reason":"` + reason + `"}`)
	}
	return []byte(`{"error":"` + kind + `","reason":"` + reason + `"}`)
}
