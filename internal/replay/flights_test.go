package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/replay/storetest"
)

// party is requests by name in the flights of one key, and what was delivered to them.
type party struct {
	flights *replay.Flights[string]
	seats   map[string]*replay.Seat[string]
	heard   []string
}

func newParty() *party {
	return &party{flights: replay.NewFlights[string](), seats: map[string]*replay.Seat[string]{}}
}

// do performs one step: "a join", "a leave", "a abort" or "a land VALUE", and notes what the call said.
func (p *party) do(step string) {
	f := strings.Fields(step)
	who := f[0]
	switch f[1] {
	case "join":
		p.seats[who] = p.flights.Join(storetest.Key("k"), func(l replay.Landing[string]) {
			if l.Seat != p.seats[who] {
				p.heard = append(p.heard, who+" got another's seat")
			}
			p.heard = append(p.heard, strings.TrimSpace(fmt.Sprintf("%s %s %s", who, l.Kind, l.Value)))
		})
	case "leave":
		p.heard = append(p.heard, fmt.Sprintf("%s left %t", who, p.seats[who].Leave()))
	case "abort":
		p.seats[who].Abort()
	case "land":
		p.seats[who].Land(f[2])
	case "leads":
		p.heard = append(p.heard, fmt.Sprintf("%s leads %t", who, p.seats[who].Leader()))
	}
}

func TestFlights(t *testing.T) {
	for name, c := range map[string]struct{ steps, want string }{
		"a leader alone hears nothing":          {"a join, a leads, a land x", "a leads true"},
		"followers get what the leader lands":   {"a join, b join, c join, b leads, a land x", "b leads false, b landed x, c landed x"},
		"who joins after a landing leads":       {"a join, a land x, b join, b leads", "b leads true"},
		"who has left hears nothing":            {"a join, b join, c join, b leave, a land x", "b left true, c landed x"},
		"leaving twice is leaving once":         {"a join, b join, b leave, b leave, a land x", "b left true, b left false"},
		"a leader cannot leave":                 {"a join, a leave, a leads", "a left false, a leads true"},
		"a landing on its way cannot be left":   {"a join, b join, a land x, b leave", "b landed x, b left false"},
		"the first follower is promoted":        {"a join, b join, c join, a abort, a leads, b leads, b land x", "b promoted, a leads false, b leads true, c landed x"},
		"joiners follow the promoted leader":    {"a join, b join, a abort, c join, c leads, b land x", "b promoted, c leads false, c landed x"},
		"only one follower is ever promoted":    {"a join, b join, c join, d join, a abort, b abort", "b promoted, c dissolved, d dissolved"},
		"after dissolving a newcomer leads":     {"a join, b join, c join, a abort, b abort, d join, d leads", "b promoted, c dissolved, d leads true"},
		"an abort alone ends the flight":        {"a join, a abort, b join, b leads", "b leads true"},
		"an abort after all have left ends it":  {"a join, b join, b leave, a abort, c join, c leads", "b left true, c leads true"},
		"an old leader can no longer land":      {"a join, b join, a abort, a land y, b land x", "b promoted"},
		"a leader lands once":                   {"a join, b join, a land x, c join, d join, a land y, a abort, c land z", "b landed x, d landed z"},
		"a follower cannot land or abort":       {"a join, b join, b land y, b abort, a land x", "b landed x"},
		"a promoted follower cannot leave":      {"a join, b join, a abort, b leave, b land x", "b promoted, b left false"},
		"a dissolved follower cannot leave":     {"a join, b join, c join, a abort, b abort, c leave", "b promoted, c dissolved, c left false"},
		"followers are told in order of coming": {"a join, b join, c join, d join, c leave, a land x", "c left true, b landed x, d landed x"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParty()
			for step := range strings.SplitSeq(c.steps, ", ") {
				p.do(step)
			}
			if got := strings.Join(p.heard, ", "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFlightsOfOtherKeysAreOthers(t *testing.T) {
	f := replay.NewFlights[int]()
	for _, k := range []string{"a", "b"} {
		if !f.Join(storetest.Key(k), nil).Leader() {
			t.Errorf("%s follows another key", k)
		}
	}
	if flights, followers := f.Len(); flights != 2 || followers != 0 {
		t.Errorf("%d flights, %d followers", flights, followers)
	}
}

// model is the same party, written plainly.
type model struct {
	queue    []string // the leader, then its followers
	promoted bool
	heard    []string
}

func (m *model) do(step string) {
	f := strings.Fields(step)
	who, at := f[0], slices.Index(m.queue, f[0])
	tell := func(kind string) {
		for _, w := range m.queue[1:] {
			m.heard = append(m.heard, strings.TrimSpace(w+" "+kind))
		}
		m.queue, m.promoted = nil, false
	}
	switch {
	case f[1] == "join":
		m.queue = append(m.queue, who)
	case f[1] == "leads":
		m.heard = append(m.heard, fmt.Sprintf("%s leads %t", who, at == 0))
	case f[1] == "leave":
		m.heard = append(m.heard, fmt.Sprintf("%s left %t", who, at > 0))
		if at > 0 {
			m.queue = slices.Delete(m.queue, at, at+1)
		}
	case at != 0: // only a leader lands or aborts
	case f[1] == "land":
		tell("landed " + f[2])
	case len(m.queue) > 1 && !m.promoted:
		m.queue, m.promoted = m.queue[1:], true
		m.heard = append(m.heard, m.queue[0]+" promoted")
	default:
		tell("dissolved")
	}
}

func TestFlightsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, m := newParty(), &model{}
		joined := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			step := fmt.Sprintf("r%d join", joined)
			if op := rapid.SampledFrom([]string{"join", "join", "leave", "abort", "land v", "leads"}).Draw(rt, "op"); op != "join" && joined > 0 {
				step = fmt.Sprintf("r%d %s", rapid.IntRange(max(0, joined-8), joined-1).Draw(rt, "who"), op)
			} else {
				joined++
			}
			p.do(step)
			m.do(step)
		}
		if diff := cmp.Diff(m.heard, p.heard); diff != "" {
			rt.Fatalf("(-model +flights)\n%s", diff)
		}
		flights, followers := p.flights.Len()
		if flights != min(len(m.queue), 1) || followers != max(len(m.queue)-1, 0) {
			rt.Fatalf("%d flights and %d followers, the model has %v", flights, followers, m.queue)
		}
	})
}

// TestFlightsUnderManyGoroutines checks the promise to a follower: it hears of its end once, or it has left.
func TestFlightsUnderManyGoroutines(t *testing.T) {
	const requests, keys = 4000, 3
	f := replay.NewFlights[int]()
	var heard, waits atomic.Int32
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			end := func(s *replay.Seat[int]) {
				if i%3 == 0 {
					s.Abort()
				} else {
					s.Land(i)
				}
			}
			var told atomic.Int32
			seat := f.Join(storetest.Key(fmt.Sprint(i%keys)), func(l replay.Landing[int]) {
				heard.Add(1)
				if told.Add(1) != 1 {
					t.Error("a follower was told twice")
				}
				if l.Kind == replay.Promoted {
					end(l.Seat)
				}
			})
			switch {
			case seat.Leader() && told.Load() == 0:
				end(seat)
			case i%5 == 0 && seat.Leave():
			default:
				waits.Add(1) // and is told by the time all is over
			}
		})
	}
	all.Wait()
	if flights, followers := f.Len(); flights != 0 || followers != 0 {
		t.Errorf("%d flights and %d followers are left", flights, followers)
	}
	// One that was promoted before it looked whether it leads is told without having waited.
	if heard.Load() < waits.Load() {
		t.Errorf("%d were told of %d that waited", heard.Load(), waits.Load())
	}
}
