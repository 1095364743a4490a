package frame

import "bytes"

// DefaultMax is the largest unit that is held back, in bytes.
const DefaultMax = 1 << 20

// Kind is what ends a unit.
type Kind uint8

// The kinds of stream; the zero value is an event stream.
const (
	SSE    Kind = iota // a blank line ends an event
	NDJSON             // a line end ends a line
)

// Event is one unit, or a piece of one that is too large to hold. Its bytes belong to the caller of Feed or to the
// splitter and are valid until the next Feed.
type Event struct {
	// Block holds the bytes exactly as they came, with everything that ends the unit. Forward all of them.
	Block []byte
	// Unframed: Block is a piece of a unit above the bound, or the end of one. It cannot be read as an event.
	Unframed bool
}

// Splitter cuts one stream. The zero value cuts an event stream with units up to DefaultMax.
type Splitter struct {
	Kind Kind
	Max  int // largest unit held back in bytes; 0 means DefaultMax

	held     []byte // an unfinished unit, begun in an earlier Feed
	lineLen  int    // bytes of the current line so far, line ends not counted
	lines    int    // whole lines of the current unit
	afterCR  bool   // the last byte was a CR: an LF now belongs to it
	unframed bool   // the current unit is above the bound and has partly gone out
}

// Feed takes the next bytes and yields every unit they complete, in order. yield returns false to stop hearing of
// units; their bytes are then lost to it. p is not kept.
func (s *Splitter) Feed(p []byte, yield func(Event) bool) {
	for len(p) > 0 {
		n, whole := s.scan(p)
		if !whole {
			s.hold(p, yield)
			return
		}
		if !yield(s.take(p[:n])) {
			yield = func(Event) bool { return false }
		}
		p = p[n:]
	}
}

// AtBoundary says whether everything so far has been handed out and ended a unit, so that another may follow.
func (s *Splitter) AtBoundary() bool {
	return len(s.held) == 0 && !s.unframed && s.lineLen == 0 && s.lines == 0
}

// Tail is the unfinished unit that is held back.
func (s *Splitter) Tail() []byte { return s.held }

// Unframed says whether part of an unfinished unit has gone out already.
func (s *Splitter) Unframed() bool { return s.unframed }

// take is the unit that ends with p.
func (s *Splitter) take(p []byte) Event {
	e := Event{Block: p, Unframed: s.unframed}
	if len(s.held) > 0 {
		s.held = append(s.held, p...)
		e.Block = s.held
		s.held = s.held[:0]
	}
	s.unframed, s.lineLen, s.lines = false, 0, 0
	return e
}

// hold keeps p for later, or lets it out unframed when the unit has become too large.
func (s *Splitter) hold(p []byte, yield func(Event) bool) {
	limit := s.Max
	if limit == 0 {
		limit = DefaultMax
	}
	switch {
	case s.unframed:
		yield(Event{Block: p, Unframed: true})
	case len(s.held)+len(p) > limit:
		s.unframed = true
		if len(s.held) > 0 {
			yield(Event{Block: s.held, Unframed: true})
			s.held = s.held[:0]
		}
		yield(Event{Block: p, Unframed: true})
	default:
		s.held = append(s.held, p...)
	}
}

// scan looks for the end of the current unit in p; n bytes of p belong to it. Line state is carried over in s.
func (s *Splitter) scan(p []byte) (n int, whole bool) {
	i := 0
	if s.afterCR {
		s.afterCR = false
		if p[0] == '\n' { // the rest of a CRLF whose CR ended a line
			i = 1
			if s.atStart() { // …and a unit: the LF goes out with nothing else
				return 1, true
			}
		}
	}
	for i < len(p) {
		end := lineEnd(p[i:])
		if end < 0 {
			s.lineLen += len(p) - i
			return len(p), false
		}
		s.lineLen += end
		i += end + 1
		if p[i-1] == '\r' {
			if i == len(p) {
				s.afterCR = true
			} else if p[i] == '\n' {
				i++
			}
		}
		blank := s.lineLen == 0
		s.lineLen = 0
		if blank || s.Kind == NDJSON {
			return i, true
		}
		s.lines++
	}
	return len(p), false
}

// atStart says whether no byte of a unit is pending.
func (s *Splitter) atStart() bool {
	return len(s.held) == 0 && s.lineLen == 0 && s.lines == 0 && !s.unframed
}

// lineEnd is the index of the first CR or LF, or -1.
func lineEnd(p []byte) int {
	lf := bytes.IndexByte(p, '\n')
	if lf < 0 {
		return bytes.IndexByte(p, '\r')
	}
	if cr := bytes.IndexByte(p[:lf], '\r'); cr >= 0 {
		return cr
	}
	return lf
}
