package replay

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// entryOverhead is what an entry takes beside its texts: the structs, the indexes, the allocator's share. An estimate.
const entryOverhead = 512

// Entry is a kept answer. It is immutable once it was given to a store.
type Entry struct {
	Status  int
	Headers []outcome.Header // what EndToEnd leaves
	Body    []byte
	Dialect string           // name of the dialect the body is in
	Tier    string           // the tier that gave it
	Reason  outcome.Degraded // the label it was given under; DegradedNone: it came from the first tier
	Stored  time.Time        // when it was made
	TTL     time.Duration    // how long it is fresh
}

// Fresh says whether the answer is within its time.
func (e *Entry) Fresh(now time.Time) bool { return e.Age(now) < e.TTL }

// Age is the time since the answer was made, never below 0: the clocks of two replicas may differ.
func (e *Entry) Age(now time.Time) time.Duration { return max(now.Sub(e.Stored), 0) }

// Size is about what the entry takes in memory, in bytes.
func (e *Entry) Size() int {
	n := entryOverhead + len(e.Body) + len(e.Dialect) + len(e.Tier)
	for _, h := range e.Headers {
		n += len(h.Name) + len(h.Value) + 32 // two string headers
	}
	return n
}

// Format prints what the entry is, and nothing of the answer.
func (e Entry) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "entry(status %d, tier %s, %d bytes)", e.Status, e.Tier, e.Size())
}

// MarshalJSON is like Format.
func (e Entry) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprint(e)) }
