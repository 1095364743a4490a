package extproc

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/session"
)

// The messages of Envoy that a walk sends, and how their answers begin as show tells them.
var (
	messages = []func() *pb.ProcessingRequest{
		func() *pb.ProcessingRequest { return chat("x-budget-ms", "60", "x-max-queue-ms", "40") },
		func() *pb.ProcessingRequest { return answer(200, "via_upstream") },
		trailers, requestBody, responseBody,
	}
	kinds = []string{"continue", "answer", "trailers", "request body", "response body"}
)

// ledger is what the walks below know of one stream.
type ledger struct {
	st       *stream
	mu       sync.Mutex     // guards the fields below; Send may run on any goroutine
	asked    map[string]int // messages of Envoy not yet answered, by the kind of their answer
	replies  int            // in the upstream's place
	problems []string
}

func newLedger(srv *Server) *ledger {
	l := &ledger{asked: map[string]int{}}
	l.st = &stream{srv: srv, out: newOutbox(l.send)}
	return l
}

// send checks what Envoy would: at most one answer to a message, in kind, and nothing after a reply of ours.
func (l *ledger) send(m *reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := show(m)
	if m.GetResponse() == nil {
		return nil
	}
	if l.replies > 0 {
		l.problems = append(l.problems, got+" after a reply of ours")
	}
	if m.GetImmediateResponse() != nil {
		l.replies++
		return nil
	}
	if got == "pass" {
		got = kinds[0]
	}
	for _, kind := range kinds {
		if strings.HasPrefix(got, kind) && l.asked[kind] > 0 {
			l.asked[kind]--
			return nil
		}
	}
	l.problems = append(l.problems, got+" to no message")
	return nil
}

// receive is one message of Envoy on the goroutine that reads the stream.
func (l *ledger) receive(step int) {
	l.mu.Lock()
	l.asked[kinds[step]]++
	l.mu.Unlock()
	l.st.receive(messages[step](), announced{})
	l.st.out.flush()
}

// TestAnyOrderOfMessagesOnCompetingStreamsBalances walks at random over four streams that compete for one slot, in
// fake time: messages in and out of order, time that passes, closures. In the end nothing is held and all is counted.
func TestAnyOrderOfMessagesOnCompetingStreamsBalances(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 4*7-1), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			srv := New(compile(t, narrowPolicy), Options{})
			defer srv.Close()
			var streams [4]*ledger
			for i := range streams {
				streams[i] = newLedger(srv)
			}
			ended := [4]bool{}
			for _, step := range steps {
				i, what := step/7, step%7
				switch {
				case what == 5:
					time.Sleep(time.Duration(1+step) * ms)
				case ended[i]:
				case what == 6:
					streams[i].st.end()
					ended[i] = true
				default:
					streams[i].receive(what)
				}
				synctest.Wait()
			}
			for i, l := range streams {
				if !ended[i] {
					l.st.end()
				}
			}
			synctest.Wait()
			checkBooks(t, srv, streams[:])
		})
	})
}

func checkBooks(t *testing.T, srv *Server, streams []*ledger) {
	t.Helper()
	for i, l := range streams {
		for _, p := range l.problems {
			t.Errorf("stream %d: %s", i, p)
		}
	}
	y, tier := srv.Tally(), srv.Dump(false).Tiers[0]
	if y.InFlight != 0 || y.Unaccounted != 0 || y.Arrived != y.Finished || tier.Used != 0 || tier.Waiting != 0 {
		t.Errorf("books %+v; %d slots held, %d waiting", y, tier.Used, tier.Waiting)
	}
}

// TestStreamsHammeredFromManyGoroutinesBalance posts to streams from the goroutines that do so in life, all at once:
// the one that reads, timers, other streams' ends, and one that shuts down and reloads.
func TestStreamsHammeredFromManyGoroutinesBalance(t *testing.T) {
	obs := &recorder{}
	snap := compile(t, seedPolicy)
	srv := New(snap, Options{Observer: obs})
	defer srv.Close()
	const workers, rounds = 16, 100
	ledgers := make([][]*ledger, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for range rounds {
				l := newLedger(srv)
				ledgers[w] = append(ledgers[w], l)
				hammer(l, rng)
			}
		})
	}
	all.Go(func() {
		for range rounds {
			srv.Apply(snap)
			srv.ResetMax()
			srv.Dump(true)
			srv.alarm.ring()
		}
	})
	all.Wait()
	for _, ls := range ledgers {
		checkBooks(t, srv, ls)
	}
	if y := srv.Tally(); y.Arrived != workers*rounds || len(obs.records) != workers*rounds {
		t.Errorf("%d arrived, %d records, want %d of each", y.Arrived, len(obs.records), workers*rounds)
	}
}

// hammer lives one request, with wakes and kicks from a second goroutine, which may still post after the end, as a
// timer may.
func hammer(l *ledger, rng *rand.Rand) {
	var others sync.WaitGroup
	n := rng.IntN(4)
	others.Go(func() {
		for range n {
			l.st.wake()
			l.st.post(letter{ev: session.Wake{}})
			l.st.out.kick()
		}
	})
	l.receive(0)
	for _, step := range []int{3, 1, 4, 2} {
		if rng.IntN(4) == 0 {
			break // the caller leaves, or the upstream is cut
		}
		if rng.IntN(2) == 0 {
			l.receive(step)
		}
	}
	l.st.end()
	others.Wait()
}
