package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	sse "github.com/tmaxmax/go-sse"
)

// unit is what a test keeps of an event.
type unit struct {
	block    string
	unframed bool
}

// cut feeds text in the given pieces and returns the units and what is left.
func cut(s *Splitter, pieces ...string) (units []unit) {
	for _, p := range pieces {
		s.Feed([]byte(p), func(e Event) bool {
			units = append(units, unit{string(e.Block), e.Unframed})
			return true
		})
	}
	return units
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		name   string
		pieces []string
		want   []unit
		tail   string
	}{
		{"LF", []string{"data: a\n\ndata: b\n\n"}, []unit{{"data: a\n\n", false}, {"data: b\n\n", false}}, ""},
		{"CRLF", []string{"data: a\r\n\r\ndata: b\r\n\r\n"}, []unit{{"data: a\r\n\r\n", false}, {"data: b\r\n\r\n", false}}, ""},
		{"CR", []string{"data: a\r\rdata: b\r\r"}, []unit{{"data: a\r\r", false}, {"data: b\r\r", false}}, ""},
		{"mixed", []string{"data: a\r\n\ndata: b\n\r\n"}, []unit{{"data: a\r\n\n", false}, {"data: b\n\r\n", false}}, ""},
		{"CRLF split after each byte", []string{"data: a\r", "\n", "\r", "\n", "x"}, []unit{{"data: a\r\n\r", false}, {"\n", false}}, "x"},
		{"CR then LF of the same line end", []string{"data: a\r", "\ndata: b\n\n"}, []unit{{"data: a\r\ndata: b\n\n", false}}, ""},
		{"comment", []string{": ping\n\n"}, []unit{{": ping\n\n", false}}, ""},
		{"leading blank lines", []string{"\n\ndata: a\n\n"}, []unit{{"\n", false}, {"\n", false}, {"data: a\n\n", false}}, ""},
		{"unfinished", []string{"data: a\n\ndata: {\"cho"}, []unit{{"data: a\n\n", false}}, "data: {\"cho"},
		{"one line end is no end", []string{"data: a\n"}, nil, "data: a\n"},
		{"byte by byte", strings.Split("data: a\n\n", ""), []unit{{"data: a\n\n", false}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Splitter
			got := cut(&s, c.pieces...)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if string(s.Tail()) != c.tail || s.AtBoundary() != (c.tail == "") {
				t.Errorf("tail %+v, at boundary %t; want %+v", s.Tail(), s.AtBoundary(), c.tail)
			}
		})
	}
}

func TestLinesOfNDJSON(t *testing.T) {
	s := Splitter{Kind: NDJSON}
	got := cut(&s, `{"a":1}`+"\n{", `"b":2}`+"\r\n", `{"c"`)
	want := []unit{{`{"a":1}` + "\n", false}, {`{"b":2}` + "\r\n", false}}
	if !slices.Equal(got, want) || string(s.Tail()) != `{"c"` {
		t.Errorf("got %+v and tail %q", got, s.Tail())
	}
}

func TestAUnitAboveTheBoundGoesThroughUnframed(t *testing.T) {
	s := Splitter{Max: 16}
	got := cut(&s, "data: a\n\n", "data: 0123", "456789abcdef", "ghi", "jk\n\ndata: b\n\n")
	want := []unit{{"data: a\n\n", false}, {"data: 0123", true}, {"456789abcdef", true}, {"ghi", true}, {"jk\n\n", true}, {"data: b\n\n", false}}
	if !slices.Equal(got, want) || !s.AtBoundary() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	cut(&s, "data: 0123456789abcdefghi")
	if s.AtBoundary() || !s.Unframed() || len(s.Tail()) != 0 {
		t.Errorf("inside an unframed unit: boundary %t, unframed %t, tail %q", s.AtBoundary(), s.Unframed(), s.Tail())
	}
}

func TestFieldsOfAnEvent(t *testing.T) {
	for _, c := range []struct {
		block             string
		name, data, other string
		has               bool
	}{
		{"event: done\ndata: {}\n\n", "done", "{}", "", true},
		{"data:{}\r\n\r\n", "", "{}", "", true},
		{"data: a\ndata: b\ndata:\n\n", "", "a\nb\n", "", true},
		{"data\n\n", "", "", "", true},
		{": x\nid: 7\nretry: 3\n\n", "", "", "", false},
		{"\xEF\xBB\xBFdata: a\n\n", "", "a", "", true},
		{`{"error":{"code":400}}` + "\n\n", "", "", `bare {"error":{"code":400}}`, false},
		{`error: {"code":400}` + "\n\n", "", "", `error {"code":400}`, false},
		{"event: a\nevent: b\ndata:  x\n\n", "b", " x", "", true},
	} {
		f, _ := Event{Block: []byte(c.block)}.Parse(true, nil)
		other := ""
		if f.Bare != nil {
			other = "bare " + string(f.Bare)
		}
		if f.Error != nil {
			other = "error " + string(f.Error)
		}
		if string(f.Name) != c.name || string(f.Data) != c.data || f.HasData != c.has || other != c.other {
			t.Errorf("%q: got name %q data %q (%t) other %q", c.block, f.Name, f.Data, f.HasData, other)
		}
	}
}

// seeds are streams of every shape the parser must know.
var seeds = []string{
	"data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r", "\xEF\xBB\xBFdata: a\n\n: c\n\n",
	"event: x\ndata: 1\ndata: 2\n\nid: 7\n\nretry: 3\n\n", "data\n\ndata:\n\n", "\n\n\r\r\n\ndata: x\n\r\n\r", "data: 日本語🙂\n\n", "data: a\u2028b\n\n",
}

// FuzzAnySplitGivesTheSameUnits cuts a stream whole, byte by byte and at two places: the bytes come out unchanged, and
// the events are the same however the stream was cut.
func FuzzAnySplitGivesTheSameUnits(f *testing.F) {
	for _, s := range seeds {
		f.Add(s, 3, 7, false, 64)
	}
	f.Fuzz(func(t *testing.T, text string, i, j int, lines bool, bound int) {
		kind := SSE
		if lines {
			kind = NDJSON
		}
		if bound < 1 {
			bound = 1
		}
		i, j = clamp(i, len(text)), clamp(j, len(text))
		whole := run(t, kind, 0, text)
		for _, pieces := range [][]string{strings.Split(text, ""), bytesOf(text), {text[:min(i, j)], text[min(i, j):max(i, j)], text[max(i, j):]}} {
			if got := run(t, kind, 0, pieces...); !slices.Equal(got, whole) {
				t.Fatalf("cut as %q: %q, whole: %q", pieces, got, whole)
			}
			run(t, kind, bound, pieces...) // with a small bound: only that no byte is lost
		}
	})
}

func clamp(i, n int) int { return min(max(i, 0), n) }

func bytesOf(s string) []string {
	out := make([]string, len(s))
	for i := range len(s) {
		out[i] = s[i : i+1]
	}
	return out
}

// run cuts a stream, checks that no byte is lost or changed, and returns its events: name and data of each.
func run(t *testing.T, kind Kind, bound int, pieces ...string) (events []string) {
	t.Helper()
	s := Splitter{Kind: kind, Max: bound}
	var out bytes.Buffer
	first := true
	for _, p := range pieces {
		s.Feed([]byte(p), func(e Event) bool {
			out.Write(e.Block)
			fields, _ := e.Parse(first, nil)
			first = false
			switch {
			case kind == NDJSON && len(bytes.TrimSpace(e.Block)) > 0:
				events = append(events, string(bytes.TrimRight(e.Block, "\r\n")))
			case fields.HasData:
				events = append(events, fmt.Sprintf("%s|%s", fields.Name, fields.Data))
			}
			return true
		})
	}
	if got, want := out.String()+string(s.Tail()), strings.Join(pieces, ""); got != want {
		t.Fatalf("cut %q: forwarded and held %q", want, got)
	}
	if bound == 0 && s.AtBoundary() != (len(s.Tail()) == 0) {
		t.Fatalf("cut %q: at boundary %t with tail %q", strings.Join(pieces, ""), s.AtBoundary(), s.Tail())
	}
	return events
}

// FuzzEventsAreGoSSEs compares with another parser written from the same specification.
func FuzzEventsAreGoSSEs(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\x00") || len(text) > 32<<10 {
			return // go-sse drops ids with NUL and bounds its lines
		}
		var want []string
		for e, err := range sse.Read(strings.NewReader(text), nil) {
			if err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, sse.ErrUnexpectedEOF) {
					break
				}
				t.Fatalf("go-sse: %v", err)
			}
			want = append(want, fmt.Sprintf("%s|%s", e.Type, e.Data))
		}
		// go-sse also dispatches events without data, which the specification does not: those do not count.
		want = slices.DeleteFunc(want, noData)
		if got := slices.DeleteFunc(run(t, SSE, 0, text), noData); !slices.Equal(got, want) {
			t.Fatalf("%q: got %q, go-sse %q", text, got, want)
		}
	})
}

func noData(event string) bool { return strings.HasSuffix(event, "|") }

func BenchmarkFeed(b *testing.B) {
	frame := []byte("data: " + strings.Repeat("x", 180-8) + "\n\n")
	chunk16k := bytes.Repeat(frame, 16384/len(frame))
	for _, c := range []struct {
		name  string
		chunk []byte
	}{{"180B", frame}, {"16KB", chunk16k}, {"180B-CRLF", []byte("data: " + strings.Repeat("x", 180-10) + "\r\n\r\n")}} {
		b.Run(c.name, func(b *testing.B) {
			var s Splitter
			n := 0
			yield := func(Event) bool { n++; return true }
			b.ReportAllocs()
			b.SetBytes(int64(len(c.chunk)))
			for b.Loop() {
				s.Feed(c.chunk, yield)
			}
		})
	}
}

func TestFeedDoesNotAllocate(t *testing.T) {
	frame := []byte("data: " + strings.Repeat("x", 172) + "\n\n")
	var s Splitter
	yield := func(Event) bool { return true }
	if n := testing.AllocsPerRun(100, func() { s.Feed(frame, yield); s.Feed(frame[:90], yield); s.Feed(frame[90:], yield) }); n > 0 {
		t.Errorf("Feed allocates %v times", n)
	}
}
