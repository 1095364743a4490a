package extproc

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

// breaking is an Observer one of whose methods panics as long as broken says so.
type breaking struct {
	recorder
	method string
	broken bool
}

func (b *breaking) trip(method string) {
	if b.broken && b.method == method {
		panic("observer of the test fails in " + method)
	}
}

func (b *breaking) Arrived(route string) { b.trip("Arrived"); b.recorder.Arrived(route) }
func (b *breaking) Finished(f Record)    { b.trip("Finished"); b.recorder.Finished(f) }
func (b *breaking) Ignored(name string)  { b.trip("Ignored"); b.recorder.Ignored(name) }
func (b *breaking) EnvoyStale(s bool)    { b.trip("EnvoyStale"); b.recorder.EnvoyStale(s) }
func (b *breaking) Waited(tier, class string, d time.Duration) {
	b.trip("Waited")
	b.recorder.Waited(tier, class, d)
}

// Counting is not worth a request: whatever an observer does, requests are decided and slots come back.
func TestAnObserverThatPanicsHarmsNoRequest(t *testing.T) {
	for _, method := range []string{"Arrived", "Finished", "Ignored", "EnvoyStale", "Waited"} {
		t.Run(method, func(t *testing.T) {
			obs := &breaking{method: method, broken: true}
			var log strings.Builder
			o := Options{Observer: obs, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			bubble(t, narrowPolicy, o, func(r *rig) {
				running, waiting, refused := r.open(envoy.MetadataConfigHash, "0000000000000000"), r.open(), r.open()
				running.expect("first", running.ask("x-budget-ms", "garbage"), admittedAtOnce)
				waiting.send(chat("x-budget-ms", "garbage"))
				waiting.expect("second waits", waiting.next(), "extend 2.7s")
				refused.expect("third", refused.ask("x-budget-ms", "garbage"), refusal("queue_full"))
				running.finish()
				waiting.expect("second", waiting.next(), admittedAtOnce)
				waiting.finish()
				if y := r.srv.Tally(); y.Arrived != 3 || y.Finished != 3 || y.Unaccounted != 0 {
					t.Errorf("books %+v, want 3 arrived and finished", y)
				}
				if r.used() != 0 {
					t.Errorf("%d slots held by nobody", r.used())
				}
				obs.broken = false
				next := r.open()
				next.expect("later", next.ask(), admittedAtOnce)
				next.finish()
			})
			if !strings.Contains(log.String(), "observer of the test fails in "+method) {
				t.Errorf("the failure is not in the log:\n%s", log.String())
			}
		})
	}
}

// fragile is a log handler that panics at one message.
type fragile struct{ at string }

func (fragile) Enabled(context.Context, slog.Level) bool { return true }
func (f fragile) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f fragile) WithGroup(string) slog.Handler          { return f }
func (f fragile) Handle(_ context.Context, r slog.Record) error {
	if r.Message == f.at {
		panic("log handler of the test fails at " + f.at)
	}
	return nil
}

// A handler that fails while a slot is held gives it back, and the rest of the stream passes through.
func TestAHandlerThatFailsLetsTheRestOfItsStreamPass(t *testing.T) {
	bubble(t, narrowPolicy, Options{Logger: slog.New(fragile{"unexpected message"})}, func(r *rig) {
		c, waits := r.open(), r.open()
		c.ask()
		waits.send(chat())
		c.send(trailers()) // out of order: complaining about it fails
		c.expect("trailers", c.next(), "trailers")
		waits.expect("who waited", waits.reply(), admittedAtOnce)
		synctest.Wait() // the slot comes back before the record is written
		if got := r.obs.last(); got.Outcome != "unmatched" || got.Tier != "" {
			t.Errorf("record %+v, want it written off as unmatched", got)
		}
		c.expect("answer", c.answer(200), "answer")
		c.send(responseBody())
		c.expect("body", c.next(), "response body")
		c.send(trailers())
		c.expect("trailers", c.next(), "trailers")
		c.close()
		waits.finish()
	})
}

// One that fails while its request waits leaves the queue, and the request passes.
func TestAHandlerThatFailsLeavesTheQueue(t *testing.T) {
	bubble(t, narrowPolicy, Options{Logger: slog.New(fragile{"unexpected message"})}, func(r *rig) {
		running, waiting := r.open(), r.open()
		running.ask()
		waiting.send(chat())
		waiting.expect("waits", waiting.next(), "extend 2.7s")
		waiting.send(trailers())
		waiting.expect("trailers", waiting.next(), "trailers")
		synctest.Wait()
		if r.waiting() != 0 || r.obs.last().Outcome != "unmatched" {
			t.Errorf("%d waiting, record %+v", r.waiting(), r.obs.last())
		}
		waiting.close()
		running.finish()
	})
}

func TestARecordThatCannotBeLoggedIsStillCounted(t *testing.T) {
	bubble(t, narrowPolicy, Options{Logger: slog.New(fragile{"request"})}, func(r *rig) {
		for range 3 {
			c := r.open()
			c.expect("request", c.ask(), admittedAtOnce)
			c.finish()
		}
	})
}

// A request whose decision fails passes through, and what it had got by then comes back.
func TestARequestThatCannotBeDecidedPasses(t *testing.T) {
	st, sent := lone(t, narrowPolicy)
	st.srv.engine = nil // Offer panics
	st.receive(chat(), announced{})
	st.out.flush()
	if got := sent(); got != "pass" {
		t.Errorf("reply %q, want pass", got)
	}
	st.end()
	if y := st.srv.Tally(); y != (Tally{}) {
		t.Errorf("books %+v, want empty: it was never counted as arrived", y)
	}
}

// A session that fails is replaced by one that lets the rest pass, whatever it held.
func TestASlotThatComesToAFailedStreamGoesBack(t *testing.T) {
	st, sent := lone(t, narrowPolicy)
	holder, _ := lone(t, narrowPolicy)
	holder.srv = st.srv
	holder.receive(chat(), announced{})
	st.receive(chat(), announced{})
	st.out.flush()
	if n := st.srv.Dump(false).Tiers[0].Waiting; n != 1 {
		t.Fatalf("%d waiting, want 1", n)
	}
	st.mu.Lock()
	st.sess, st.books = session.Passing(false), closed // as if an effect had failed and abandoning had lost the race
	st.mu.Unlock()
	st.srv.tally.finish()
	holder.end()
	if n := st.srv.Dump(false).Tiers[0].Used; n != 0 {
		t.Errorf("%d slots held by a stream that passes", n)
	}
	if got := sent(); !strings.HasPrefix(got, "extend ") || strings.Contains(got, ",") {
		t.Errorf("sent %q, want nothing after the news that it waits", got)
	}
	st.end()
}

// lone is a stream without gRPC; sent tells what it has sent since the last call.
func lone(t testing.TB, src string) (st *stream, sent func() string) {
	srv := New(compile(t, src), Options{})
	t.Cleanup(srv.Close)
	var mu sync.Mutex
	var all []string
	st = &stream{srv: srv, out: newOutbox(func(m *reply) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, show(m))
		return nil
	})}
	return st, func() string {
		mu.Lock()
		defer mu.Unlock()
		s := strings.Join(all, ", ")
		all = nil
		return s
	}
}

// A peer that sends and does not read fills the windows of HTTP/2 until Send blocks. It holds nobody else up, and its
// slot is free at its deadline.
func TestAPeerThatDoesNotReadHoldsOnlyItsOwnStream(t *testing.T) {
	bubble(t, narrowPolicy, Options{}, func(r *rig) {
		stuck, waits := r.open(), r.open()
		stuck.send(chat())
		synctest.Wait()
		waits.send(chat("x-budget-ms", "9000"))
		var sending sync.WaitGroup
		sending.Go(func() {
			for { // until the server no longer reads, and then until the stream is over
				if stuck.s.Send(requestBody()) != nil {
					return
				}
			}
		})
		synctest.Wait() // everything blocks: Send of the server, which has stopped to read; then Send of the client
		other := r.open()
		other.expect("others are decided", other.ask(), refusal("queue_full"))
		waits.expect("who waited gets the slot", waits.reply(), "continue x-deadline-covers=whole x-deadline-remaining-ms=6500 x-tier=full")
		if got := r.since(); got != 2450*ms {
			t.Errorf("at %s, want 2.45s", got)
		}
		synctest.Wait() // the slot comes back before the record is written
		want := Record{Route: "chat", Class: "default", Outcome: "deadline", Source: "deadline", Tier: "full", Status: 504,
			UpstreamOutcome: "deadline", Duration: 2450 * ms, Upstream: 2450 * ms}
		if got := r.obs.last(); got != want {
			t.Errorf("record\n got %+v\nwant %+v", got, want)
		}
		waits.finish()
		stuck.abort()
		sending.Wait()
	})
}

// A caller leaves while a Send of its stream blocks: the handler must not return before Send has.
func TestAHandlerWaitsForItsFlusher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := newOutbox(func(*reply) error { <-release; return errors.New("gone") })
		o.put(encodeContinueTrailers())
		o.kick()
		synctest.Wait()
		began, closedAt := time.Now(), time.Duration(0)
		var closing sync.WaitGroup
		closing.Go(func() { o.close(); closedAt = time.Since(began) })
		time.Sleep(time.Second)
		if closedAt != 0 {
			t.Errorf("closed after %s while Send was running", closedAt)
		}
		close(release)
		closing.Wait()
		if closedAt != time.Second {
			t.Errorf("closed after %s, want 1s: when Send returned", closedAt)
		}
		if o.put(encodeContinueTrailers()) {
			t.Error("a closed outbox takes answers")
		}
	})
}

// Send of gRPC must not run twice at once on a stream, whoever flushes.
func TestAnswersGoOutOneAtATimeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []string
		running, most := 0, 0
		o := newOutbox(func(m *reply) error {
			mu.Lock()
			running++
			most = max(most, running)
			sent = append(sent, show(m))
			mu.Unlock()
			time.Sleep(ms)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		var flushers sync.WaitGroup
		for i := range 10 {
			if !o.put(encodeExtendTimeout(time.Duration(i) * time.Second)) {
				t.Fatalf("answer %d was not taken", i)
			}
			flushers.Go(o.flush)
			o.kick()
			synctest.Wait()
		}
		flushers.Wait()
		o.close()
		want := []string{"extend 0s", "extend 1s", "extend 2s", "extend 3s", "extend 4s", "extend 5s", "extend 6s", "extend 7s", "extend 8s", "extend 9s"}
		if diff := cmp.Diff(want[:len(sent)], sent); diff != "" || most != 1 || len(sent) == 0 {
			t.Errorf("%d sends at once; sent -want +got\n%s", most, diff)
		}
	})
}

func TestAnOutboxIsBounded(t *testing.T) {
	o := newOutbox(func(*reply) error { return nil })
	for i := range outboxSize {
		if !o.put(encodeContinueTrailers()) {
			t.Fatalf("answer %d was not taken", i)
		}
	}
	if o.put(encodeContinueTrailers()) {
		t.Errorf("answer %d was taken", outboxSize)
	}
	o.flush()
	if !o.put(encodeContinueTrailers()) {
		t.Error("nothing was taken after a flush")
	}
	o.close()
}

// A request whose stream ends without an outcome is a bug, and the books say so.
func TestARequestThatIsLostShowsInTheBooks(t *testing.T) {
	st, _ := lone(t, narrowPolicy)
	st.receive(chat(), announced{})
	st.mu.Lock()
	st.sess = session.Passing(false) // loses what was going on
	st.mu.Unlock()
	st.end()
	if y := st.srv.Tally(); y != (Tally{Arrived: 1, Unaccounted: 1}) {
		t.Errorf("books %+v, want one arrival unaccounted for", y)
	}
	if n := st.srv.Dump(false).Tiers[0].Used; n != 0 {
		t.Errorf("%d slots held by it", n)
	}
}

func TestUntoldDetailsOfARecordStayEmpty(t *testing.T) {
	got := record(time.Unix(7, 0), session.Finish{Outcome: outcome.Unmatched}, "", time.Unix(5, 0))
	want := Record{Route: "none", Outcome: "unmatched", Duration: 2 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
