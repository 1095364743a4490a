package dialect

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/internal/frame"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

var update = flag.Bool("update", false, "rewrite what testdata/*/*.txt expects")

// atDeadline is the ending the transcripts show.
var atDeadline = Ending{Tier: "small", Reason: outcome.DegradedDeadline}

// transcript is a stream of an upstream and what is to become of it.
type transcript struct {
	name   string
	head   string // comments, with the options
	id     ID
	opts   Options
	stream string
	want   string // marks, state and ending
}

func readTranscript(t testing.TB, file string) transcript {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(raw), "-- stream --\n")
	stream, want, ok2 := strings.Cut(rest, "-- marks --\n")
	id, ok3 := ByName(filepath.Base(filepath.Dir(file)))
	if !ok1 || !ok2 || !ok3 {
		t.Fatalf("%s is no transcript of a dialect", file)
	}
	tr := transcript{name: strings.TrimSuffix(filepath.Base(file), ".txt"), head: head, id: id, stream: stream, want: want}
	_, options, _ := strings.Cut(head, "# options: ")
	for _, o := range strings.Fields(options) {
		switch o {
		case "eof":
			tr.opts.EvidenceEOF = true
		case "pinned":
			tr.opts.Pinned = true
		case "mistral":
			tr.opts.Mistral = true
		case "error":
			tr.opts.Terminal = Error
		case "bare":
			tr.opts.Terminal = Bare
		case "crlf": // a remark: the stream has such line ends
		default:
			t.Fatalf("%s: unknown option %q", file, o)
		}
	}
	return tr
}

func transcripts(t testing.TB) (all []transcript) {
	t.Helper()
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, f := range files {
		all = append(all, readTranscript(t, f))
	}
	return all
}

// unit is one unit of a stream and what the dialect said to it.
type unit struct {
	block  []byte
	mark   Mark
	honest []byte // what of a withheld block may go on
}

// play lets a new tracker observe bytes as the answer's owner would: it changes to Generic when the first event is
// foreign. Only a stream with a whole last unit is played to its end.
func play(id ID, o Options, stream []byte) (Stream, []unit) {
	s := New(id, o)
	var units []unit
	split := frame.Splitter{}
	if id.NDJSON() {
		split.Kind = frame.NDJSON
	}
	first := true
	split.Feed(stream, func(e frame.Event) bool {
		if e.Unframed {
			return false
		}
		f, _ := e.Parse(first, nil)
		first = false
		m := s.Observe(f, e.Block)
		if m&Foreign != 0 {
			s = New(Generic, o)
			m = s.Observe(f, e.Block) | Foreign
		}
		u := unit{block: bytes.Clone(e.Block), mark: m}
		if m&Withhold != 0 {
			u.honest = s.AppendHonest(nil, e.Block)
		}
		units = append(units, u)
		return true
	})
	return s, units
}

// theLabel is the label the transcripts and templates show.
var theLabel = Label{Tier: "small", Reason: outcome.DegradedQueuePressure, DeadlineMs: 2500}

// label plays a stream and returns its bytes with the label from where it begins, as the answer's owner would send it;
// "" if there is none. all is the whole of what is sent.
func label(id ID, o Options, stream []byte) (labelled string, all []byte) {
	s := New(id, o)
	split := frame.Splitter{}
	if id.NDJSON() {
		split.Kind = frame.NDJSON
	}
	first, from := true, -1
	split.Feed(stream, func(e frame.Event) bool {
		f, _ := e.Parse(first, nil)
		first = false
		m := s.Observe(f, e.Block)
		if m&Foreign != 0 {
			s = New(Generic, o)
			m = s.Observe(f, e.Block)
		}
		switch {
		case m&Withhold != 0:
			all = s.AppendHonest(all, e.Block)
		case m&Last != 0 && from < 0:
			from = len(all)
			all = s.AppendLabel(all, e.Block, theLabel)
		default:
			all = append(all, e.Block...)
		}
		return true
	})
	if st := s.State(); from < 0 && st.Complete && !st.Foreign {
		from = len(all)
		all = s.AppendLabel(all, nil, theLabel)
	}
	if from < 0 {
		return "", all
	}
	return string(all[from:]), all
}

// forwarded is what of the units goes to the client.
func forwarded(units []unit) (out []byte) {
	for _, u := range units {
		if u.mark&Withhold == 0 {
			out = append(out, u.block...)
		}
		out = append(out, u.honest...)
	}
	return out
}

var markNames = []string{"data", "content", "finished", "failed", "withhold", "foreign", "sentinel", "last", "final"}

func (m Mark) String() string {
	var words []string
	for i, n := range markNames {
		if m&(1<<i) != 0 {
			words = append(words, n)
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

func render(s Stream, units []unit) string {
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintln(&b, u.mark)
		if len(u.honest) > 0 {
			fmt.Fprintf(&b, "but for %s\n", bytes.TrimSpace(u.honest))
		}
	}
	st := s.State()
	fmt.Fprintf(&b, "-- state --\n%s: class %s", s.ID(), st.Class)
	for _, f := range []struct {
		on   bool
		name string
	}{{st.Complete, "complete"}, {st.Provisional, "provisional"}, {st.Content, "content"}, {st.OpenTool, "open tool"}, {st.Error, "error"}, {st.Foreign, "foreign"}} {
		if f.on {
			b.WriteString(", " + f.name)
		}
	}
	if st.Finish != "" {
		fmt.Fprintf(&b, ", finish %s", st.Finish)
	}
	if st.Usage != (Usage{}) {
		fmt.Fprintf(&b, ", usage %d in %d out", st.Usage.Input, st.Usage.Output)
	}
	fmt.Fprintf(&b, "\n-- ending --\n%s", s.AppendEnding(nil, atDeadline))
	return b.String()
}

func TestTranscripts(t *testing.T) {
	for _, tr := range transcripts(t) {
		t.Run(tr.id.String()+"/"+tr.name, func(t *testing.T) {
			got := render(play(tr.id, tr.opts, []byte(tr.stream)))
			if labelled, _ := label(tr.id, tr.opts, []byte(tr.stream)); labelled != "" {
				got += "-- label --\n" + labelled
			}
			if *update {
				file := filepath.Join("testdata", tr.id.String(), tr.name+".txt")
				if err := os.WriteFile(file, []byte(tr.head+"-- stream --\n"+tr.stream+"-- marks --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(tr.want, got); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

// TestEveryLineEndTellsTheSame plays the transcripts with other line ends.
func TestEveryLineEndTellsTheSame(t *testing.T) {
	for _, tr := range transcripts(t) {
		if tr.id.NDJSON() || strings.Contains(tr.stream, "\r") {
			continue
		}
		want := render(play(tr.id, tr.opts, []byte(tr.stream)))
		for _, end := range []string{"\r\n", "\r"} {
			got := render(play(tr.id, tr.opts, []byte(strings.ReplaceAll(tr.stream, "\n", end))))
			if got != want {
				t.Errorf("%s/%s with %q: %s", tr.id, tr.name, end, cmp.Diff(want, got))
			}
		}
	}
}
