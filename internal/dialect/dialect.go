package dialect

import (
	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// ID names a dialect. The zero value is an event stream nobody told us about.
type ID uint8

// The dialects.
const (
	Generic     ID = iota // event stream of unknown dialect: the seed's frame
	Chat                  // OpenAI chat completions, and all who speak it
	Completions           // OpenAI completions
	Responses             // OpenAI Responses
	Anthropic             // Anthropic Messages
	Gemini                // Gemini streamGenerateContent as an event stream
	Ollama                // Ollama /api/chat and /api/generate, NDJSON
	numIDs
)

// Mark says what one unit of a stream was. It is a set of bits.
type Mark uint16

// The marks.
const (
	// Data: the unit carried data. Comments, empty data and pings do not, and do not show that the model is alive.
	Data Mark = 1 << iota
	// Content: the unit carried something a reader sees, or a tool call: the first token has come. A role, a ping or
	// the announcement of a response is none.
	Content
	// Finished: with this unit the evidence of completion is there. More may follow: usage, a sentinel.
	Finished
	// Failed: the upstream reports an error in the stream.
	Failed
	// Withhold: the unit must not be forwarded, because it ends the stream with a lie: an abort as a finish reason, a
	// sentinel without a finish. The ending is ours to write.
	Withhold
	// Foreign: the unit does not fit the dialect, and none did before: the stream is Generic. The caller makes a new
	// Stream and lets it observe the unit again. Lines of NDJSON are never foreign: Generic is an event stream.
	Foreign
	// Sentinel: the unit is a [DONE], the last word of the upstream. Withheld, it says that nothing more will prove
	// the answer complete: the ending may be written at once.
	Sentinel
	// Last: the unit closes the answer, so the label of a degraded one goes on it or in front of it.
	Last
	// Final: the unit is the upstream's last word by the rules of the dialect: a sentinel, a terminal event, an error
	// that ends the stream. A finish reason is none where more may follow it.
	Final

	// beat is of no interest outside: the unit only keeps the connection alive. Observe turns it into no mark at all.
	beat Mark = 1 << 15
)

// Mode is how a stream that cannot be completed is ended.
type Mode uint8

// The modes; the zero value is the default.
const (
	Polyglot Mode = iota // our frame as a legal terminal object of the dialect
	Bare                 // the seed's frame alone
	Error                // what every client of the dialect raises as an error
)

// Options tune a Stream.
type Options struct {
	// EvidenceEOF: the service sends no proof of completion; a clean end is complete.
	EvidenceEOF bool
	Terminal    Mode
	// Pinned: the dialect is policy. A stream that never looks like it is judged by it all the same.
	Pinned bool
	// Mistral: the path says that it is Mistral's API, whose clients demand content in every delta. Its chunks mostly
	// tell without.
	Mistral bool
}

// Usage is what the upstream says it counted; zero where it said nothing.
type Usage struct{ Input, Output int }

// State is what is known of an answer so far.
type State struct {
	// Complete: the dialect's evidence of completion was seen. It may be taken back where a stream can show that more
	// is to come: a further choice begins, or one goes on after a finish reason.
	Complete bool
	// Provisional: Complete only holds if the upstream now ends the stream itself, cleanly; at a deadline, a silence or
	// a cut the answer is unfinished. So it is with EvidenceEOF, where a finish reason may come with every frame, and
	// behind a unit that nobody could read.
	Provisional bool
	// Class is the outcome if the answer ended now and well: OK, Capped, Refusal or Empty, or what an error in the
	// stream means. Unknown while there is nothing to judge, and where what was to be judged could not be read.
	Class outcome.Outcome
	// Content: something a reader sees has come.
	Content bool
	// OpenTool: the arguments of a tool call are unfinished.
	OpenTool bool
	// Error: the upstream ended the stream with an error of its own.
	Error bool
	// Foreign: nothing in it looks like the dialect, and it is no event stream: nothing of ours can stand behind it.
	Foreign bool
	Finish  string // the last finish reason, as sent
	Usage   Usage
}

// Ending is what our terminal frame says.
type Ending struct {
	Tier   string
	Reason outcome.Degraded
}

// Stream judges one streamed answer.
type Stream interface {
	// ID is the dialect.
	ID() ID
	// Observe takes one unit: the fields of an event, or in NDJSON the line. It keeps none of the bytes.
	Observe(f frame.Fields, line []byte) Mark
	// Blind notes a unit, or a piece of one, that is too large to be read. It has content, and may have had the evidence.
	Blind()
	// State is what is known so far.
	State() State
	// AppendEnding appends what ends the stream here, at a unit boundary: the honest terminal of an unfinished
	// answer, or after an error of the upstream only what the dialect still lacks, which may be nothing.
	AppendEnding(dst []byte, e Ending) []byte
	// AppendHonest appends what of unit, which Observe has just marked Withhold, may go on: its words without its lie.
	// Nothing, if it says nothing else.
	AppendHonest(dst, unit []byte) []byte
	// AppendLabel appends unit, which Observe marked Last, with the label of a degraded answer on it or in front of
	// it. A nil unit: the answer is complete and ends here without one; then what is appended is the label's frame.
	AppendLabel(dst, unit []byte, l Label) []byte
}
