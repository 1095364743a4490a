// Command driver runs the Go SDKs for the SDK table.
//
// Standard input: {"base": "http://HOST:PORT", "cases": [{"row", "scenario", "headers", "tools", "max_tokens", "extra"}, …]}.
// Standard output, one line a case: {"row", "scenario", "text", "tool", "finish", "error"}, as the client of that row
// saw the answer: the text and the tool arguments so far, the finish reason, and the error with the type it has.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
)

// job is one call of one client.
type job struct {
	Row       string            `json:"row"`
	Scenario  string            `json:"scenario"`
	Headers   map[string]string `json:"headers"`
	Tools     bool              `json:"tools"`
	MaxTokens int64             `json:"max_tokens"`
	Extra     map[string]any    `json:"extra"`
	base      string
}

// seen is what a client has seen so far; it stays when an error follows.
type seen struct {
	Row      string `json:"row"`
	Scenario string `json:"scenario"`
	Text     string `json:"text"`
	Tool     string `json:"tool"`
	Finish   string `json:"finish"`
	Error    string `json:"error"`
}

var rows = map[string]func(context.Context, job, *seen) error{
	"openai-go chat NewStreaming":        chatStreaming,
	"openai-go chat accumulator":         chatAccumulator,
	"openai-go chat JSON":                chatJSON,
	"openai-go completions NewStreaming": completionsStreaming,
	"openai-go completions JSON":         completionsJSON,
	"openai-go responses NewStreaming":   responsesStreaming,
	"openai-go responses JSON":           responsesJSON,
	"anthropic-go NewStreaming":          messagesStreaming,
	"anthropic-go Accumulate":            messagesAccumulate,
	"anthropic-go JSON":                  messagesJSON,
	"genai-go stream":                    genaiStream,
	"genai-go JSON":                      genaiJSON,
}

var schema = map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}}

func openaiClient(j job) openai.Client {
	opts := []openaioption.RequestOption{openaioption.WithBaseURL(j.base + "/v1"), openaioption.WithAPIKey("none"), openaioption.WithMaxRetries(0)}
	for k, v := range j.Headers {
		opts = append(opts, openaioption.WithHeader(k, v))
	}
	for k, v := range j.Extra {
		opts = append(opts, openaioption.WithJSONSet(k, v))
	}
	return openai.NewClient(opts...)
}

func chatParams(j job) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: "m", MaxTokens: openai.Int(j.MaxTokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	if j.Tools {
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
			openai.FunctionDefinitionParam{Name: "write", Parameters: schema})}
	}
	return p
}

func chatStreaming(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	stream := c.Chat.Completions.NewStreaming(ctx, chatParams(j))
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			s.Text += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				s.Tool += call.Function.Arguments
			}
			s.Finish = or(choice.FinishReason, s.Finish)
		}
	}
	return stream.Err()
}

func chatAccumulator(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	stream := c.Chat.Completions.NewStreaming(ctx, chatParams(j))
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if chunk := stream.Current(); !acc.AddChunk(chunk) {
			return fmt.Errorf("the accumulator refuses %s", chunk.RawJSON())
		}
	}
	for _, choice := range acc.Choices {
		chatChoice(choice, s)
	}
	return stream.Err()
}

func chatChoice(choice openai.ChatCompletionChoice, s *seen) {
	s.Text, s.Finish = choice.Message.Content, choice.FinishReason
	for _, call := range choice.Message.ToolCalls {
		s.Tool += call.Function.Arguments
	}
}

func chatJSON(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	whole, err := c.Chat.Completions.New(ctx, chatParams(j))
	if err != nil {
		return err
	}
	for _, choice := range whole.Choices {
		chatChoice(choice, s)
	}
	return nil
}

func completionParams(j job) openai.CompletionNewParams {
	return openai.CompletionNewParams{Model: "m", MaxTokens: openai.Int(j.MaxTokens), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("hi")}}
}

func completionsStreaming(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	stream := c.Completions.NewStreaming(ctx, completionParams(j))
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			s.Text += choice.Text
			s.Finish = or(string(choice.FinishReason), s.Finish)
		}
	}
	return stream.Err()
}

func completionsJSON(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	whole, err := c.Completions.New(ctx, completionParams(j))
	if err != nil {
		return err
	}
	for _, choice := range whole.Choices {
		s.Text, s.Finish = choice.Text, string(choice.FinishReason)
	}
	return nil
}

func responsesParams(j job) responses.ResponseNewParams {
	p := responses.ResponseNewParams{Model: "m", MaxOutputTokens: openai.Int(j.MaxTokens),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}}
	if j.Tools {
		p.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "write", Parameters: schema, Strict: openai.Bool(false)}}}
	}
	return p
}

func responsesFinish(r responses.Response, s *seen) {
	if s.Finish = string(r.Status); r.IncompleteDetails.Reason != "" {
		s.Finish += " " + r.IncompleteDetails.Reason
	}
}

func responsesStreaming(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	stream := c.Responses.NewStreaming(ctx, responsesParams(j))
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			s.Text += e.Delta
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			s.Tool += e.Delta
		case responses.ResponseCompletedEvent:
			responsesFinish(e.Response, s)
		case responses.ResponseIncompleteEvent:
			responsesFinish(e.Response, s)
		case responses.ResponseFailedEvent:
			responsesFinish(e.Response, s)
		}
	}
	return stream.Err()
}

func responsesJSON(ctx context.Context, j job, s *seen) error {
	c := openaiClient(j)
	whole, err := c.Responses.New(ctx, responsesParams(j))
	if err != nil {
		return err
	}
	s.Text = whole.OutputText()
	responsesFinish(*whole, s)
	return nil
}

func anthropicClient(j job) anthropic.Client {
	opts := []anthropicoption.RequestOption{anthropicoption.WithBaseURL(j.base), anthropicoption.WithAPIKey("none"), anthropicoption.WithMaxRetries(0)}
	for k, v := range j.Headers {
		opts = append(opts, anthropicoption.WithHeader(k, v))
	}
	for k, v := range j.Extra {
		opts = append(opts, anthropicoption.WithJSONSet(k, v))
	}
	return anthropic.NewClient(opts...)
}

func messagesParams(j job) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: "m", MaxTokens: j.MaxTokens,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}}
	if j.Tools {
		p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "write",
			InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"]}}}}
	}
	return p
}

func messagesStreaming(ctx context.Context, j job, s *seen) error {
	c := anthropicClient(j)
	stream := c.Messages.NewStreaming(ctx, messagesParams(j))
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case anthropic.ContentBlockDeltaEvent:
			s.Text += e.Delta.Text
			s.Tool += e.Delta.PartialJSON
		case anthropic.MessageDeltaEvent:
			s.Finish = string(e.Delta.StopReason)
		}
	}
	return stream.Err()
}

func messagesAccumulate(ctx context.Context, j job, s *seen) error {
	c := anthropicClient(j)
	stream := c.Messages.NewStreaming(ctx, messagesParams(j))
	var message anthropic.Message
	for stream.Next() {
		if err := message.Accumulate(stream.Current()); err != nil {
			return err
		}
	}
	messageSeen(message, s)
	return stream.Err()
}

func messageSeen(message anthropic.Message, s *seen) {
	for _, block := range message.Content {
		s.Text += block.Text
		s.Tool += string(block.Input)
	}
	s.Finish = string(message.StopReason)
}

func messagesJSON(ctx context.Context, j job, s *seen) error {
	c := anthropicClient(j)
	message, err := c.Messages.New(ctx, messagesParams(j))
	if err != nil {
		return err
	}
	messageSeen(*message, s)
	return nil
}

func genaiCall(ctx context.Context, j job) (*genai.Client, []*genai.Content, *genai.GenerateContentConfig, error) {
	headers := map[string][]string{}
	for k, v := range j.Headers {
		headers[k] = []string{v}
	}
	c, err := genai.NewClient(ctx, &genai.ClientConfig{APIKey: "none", Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: j.base, Headers: headers}})
	config := &genai.GenerateContentConfig{MaxOutputTokens: int32(j.MaxTokens)}
	if j.Tools {
		config.Tools = []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "write", ParametersJsonSchema: schema}}}}
	}
	return c, genai.Text("hi"), config, err
}

func genaiSeen(r *genai.GenerateContentResponse, s *seen) {
	for _, candidate := range r.Candidates {
		s.Finish = or(string(candidate.FinishReason), s.Finish)
		if candidate.Content == nil {
			continue
		}
		for _, part := range candidate.Content.Parts {
			s.Text += part.Text
			if part.FunctionCall != nil {
				args, _ := json.Marshal(part.FunctionCall.Args) // decoded from JSON
				s.Tool += string(args)
			}
		}
	}
}

func genaiStream(ctx context.Context, j job, s *seen) error {
	c, contents, config, err := genaiCall(ctx, j)
	if err != nil {
		return err
	}
	for r, err := range c.Models.GenerateContentStream(ctx, "m", contents, config) {
		if err != nil {
			return err
		}
		genaiSeen(r, s)
	}
	return nil
}

func genaiJSON(ctx context.Context, j job, s *seen) error {
	c, contents, config, err := genaiCall(ctx, j)
	if err != nil {
		return err
	}
	r, err := c.Models.GenerateContent(ctx, "m", contents, config)
	if err != nil {
		return err
	}
	genaiSeen(r, s)
	return nil
}

func or(s, instead string) string {
	if s != "" {
		return s
	}
	return instead
}

func run(ctx context.Context, j job) seen {
	s := seen{Row: j.Row, Scenario: j.Scenario}
	call, ok := rows[j.Row]
	if !ok {
		s.Error = "no such row"
		return s
	}
	if err := call(ctx, j, &s); err != nil {
		s.Error = fmt.Sprintf("%T: %v", err, err)
	}
	return s
}

func main() {
	log.SetFlags(0)
	var in struct {
		Base  string `json:"base"`
		Cases []job  `json:"cases"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		log.Fatalf("driver: reading the cases: %v", err)
	}
	jobs := make(chan job)
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for j := range jobs {
				s := run(context.Background(), j)
				mu.Lock()
				if err := out.Encode(s); err != nil {
					log.Printf("driver: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	for _, j := range in.Cases {
		j.base = in.Base
		jobs <- j
	}
	close(jobs)
	wg.Wait()
}
