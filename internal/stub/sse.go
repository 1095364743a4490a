package stub

import (
	"encoding/json"
	"strconv"
	"strings"
)

const doneEvent = "data: [DONE]\n\n"

// chunk is one event of a streamed chat completion in the OpenAI dialect.
type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
}

type choice struct {
	Index        int     `json:"index"`
	Delta        delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal string  `json:"refusal,omitempty"`
}

// event renders one chunk as an SSE event. The fields are constants of the stub: answers are the same in every run.
func event(d delta, finish *string) string {
	c := chunk{
		ID: "chatcmpl-stub", Object: "chat.completion.chunk", Created: 1700000000, Model: "stub",
		Choices: []choice{{Delta: d, FinishReason: finish}},
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "" // strings and integers always marshal
	}
	return "data: " + string(text) + "\n\n"
}

func roleChunk() string { return event(delta{Role: "assistant", Content: new("")}, nil) }

func contentChunk(i int) string {
	return event(delta{Content: new("word" + strconv.Itoa(i) + " ")}, nil)
}

func finishChunk(reason string) string { return event(delta{}, &reason) }

// streamText is the whole of mode stream with n content chunks.
func streamText(n int) string {
	var b strings.Builder
	b.WriteString(roleChunk())
	for i := range n {
		b.WriteString(contentChunk(i))
	}
	b.WriteString(finishChunk("stop") + doneEvent)
	return b.String()
}

func emptyText() string { return roleChunk() + finishChunk("stop") + doneEvent }

func refuseText() string {
	return roleChunk() + event(delta{Refusal: refusal}, nil) + finishChunk("stop") + doneEvent
}

// evictText is what engines send when they give up a running request: an end that looks regular but for its reason.
func evictText() string { return roleChunk() + contentChunk(0) + finishChunk("abort") + doneEvent }
