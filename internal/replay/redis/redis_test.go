package redis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/replay/storetest"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

func TestItIsAStoreOnMiniredis(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		m := mini(t)
		return storetest.Backend{
			Store: open(t, Options{Address: m.Addr()}), Other: open(t, Options{Address: m.Addr()}),
			Now: time.Now, Advance: m.FastForward,
		}
	})
}

func TestItIsAStoreOnARealServer(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{Password: "p"})
	var tests atomic.Int32
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		o := Options{Address: r.Addr, Password: "p", Prefix: fmt.Sprintf("test%d:", tests.Add(1))}
		return storetest.Backend{Store: open(t, o), Other: open(t, o), Now: time.Now}
	})
}

// TestWhatWasConfirmedOutlivesKillNine: an answer that another replica could read is there after the server was killed.
func TestWhatWasConfirmedOutlivesKillNine(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{AppendOnly: true})
	s := open(t, Options{Address: r.Addr})
	e := storetest.Entry(time.Now(), "answer")
	s.Settle(time.Now(), mustClaim(t, s, "k", "p", replay.Taken), e, time.Hour)
	becomes(t, s, "k", "p", replay.Done)
	mustClaim(t, s, "running", "p", replay.Taken)

	r.Restart()
	if diff := storetest.Diff(e, becomes(t, s, "k", "p", replay.Done).Entry); diff != "" {
		t.Error(diff)
	}
	becomes(t, s, "k", "q", replay.Mismatch)
	becomes(t, s, "running", "p", replay.Busy)
	shut(t, s) // before the server that was started last is ended with the test
}

// TestAnAnswerIsSettledWhenTheServerIsBack: nothing that was paid for is lost while the server restarts.
func TestAnAnswerIsSettledWhenTheServerIsBack(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{AppendOnly: true})
	s := open(t, Options{Address: r.Addr, Lease: 30 * time.Second})
	c := mustClaim(t, s, "k", "p", replay.Taken)
	free := mustClaim(t, s, "free", "p", replay.Taken)
	r.Kill()
	e := storetest.Entry(time.Now(), "answer")
	s.Settle(time.Now(), c, e, time.Hour)
	s.Release(time.Now(), free)
	testkit.Eventually(t, patience, func() bool {
		_, err := claim(t, s, "other", "p")
		return errors.Is(err, replay.ErrDown) && s.health.down.Load()
	}, "the store does not notice that the server is down")
	r.Restart()
	other := open(t, Options{Address: r.Addr})
	if diff := storetest.Diff(e, becomes(t, other, "k", "p", replay.Done).Entry); diff != "" {
		t.Error(diff)
	}
	becomes(t, other, "free", "q", replay.Taken)
}

func TestACrashedOwnersClaimLapsesAndALivingOnesDoesNot(t *testing.T) {
	const lease = time.Second
	r := testkit.StartRedis(t, testkit.RedisOptions{})
	dead, alive, other := open(t, Options{Address: r.Addr, Lease: lease}), open(t, Options{Address: r.Addr, Lease: lease}), open(t, Options{Address: r.Addr})
	crashed := mustClaim(t, dead, "dead", "p", replay.Taken)
	held := mustClaim(t, alive, "alive", "p", replay.Taken)
	mustClaim(t, other, "dead", "p", replay.Busy)
	crash(t, dead)
	taken := time.Now()
	becomes(t, other, "dead", "p", replay.Taken)
	testkit.Eventually(t, patience, func() bool {
		mustClaim(t, other, "alive", "p", replay.Busy)
		return time.Since(taken) > 2*lease
	}, "time stands still")
	alive.Settle(time.Now(), held, storetest.Entry(time.Now(), "x"), time.Hour)
	becomes(t, other, "alive", "p", replay.Done)

	// The first owner's process comes back from a long pause, and has no say in it.
	late := open(t, Options{Address: r.Addr})
	late.held.add(crashed)
	late.Settle(time.Now(), crashed, storetest.Entry(time.Now(), "late"), time.Hour)
	testkit.Eventually(t, patience, func() bool { return late.held.get(crashed.Token) == nil }, "the late answer is not sent")
	mustClaim(t, other, "dead", "p", replay.Busy)
}

// TestAnAnswerOfALapsedClaimIsKeptIfNobodyTookTheKey: it was paid for.
func TestAnAnswerOfALapsedClaimIsKeptIfNobodyTookTheKey(t *testing.T) {
	m := mini(t)
	s := open(t, Options{Address: m.Addr(), Lease: time.Hour})
	c := mustClaim(t, s, "k", "p", replay.Taken)
	m.FastForward(2 * time.Hour)
	if m.Exists(s.claimKey(c.Key)) {
		t.Fatal("the lease did not lapse")
	}
	s.Settle(time.Now(), c, storetest.Entry(time.Now(), "x"), time.Hour)
	testkit.Eventually(t, patience, func() bool { return s.held.get(c.Token) == nil }, "the answer is not sent")
	mustClaim(t, s, "k", "p", replay.Done)
}

func TestASlowServerDelaysNobodyBeyondTheTimeout(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{})
	failures := &counter{}
	s := open(t, Options{Address: r.Addr, Timeout: 20 * time.Millisecond, Observer: failures})
	// On a busy machine even the first answer may have come too late.
	testkit.Eventually(t, patience, func() bool { return !s.health.down.Load() }, "the store does not see the server")
	r.Pause()
	begun := time.Now()
	var slow, down int
	for range 10 {
		_, err := claim(t, s, "k", "p")
		switch {
		case errors.Is(err, replay.ErrSlow):
			slow++
		case errors.Is(err, replay.ErrDown):
			down++
		default:
			t.Fatalf("a paused server answered: %v", err)
		}
	}
	// The first calls wait, and after a row of failures none does.
	if slow < 1 || slow > failuresToDown || down < 1 || failures.of(opClaim) != 10 {
		t.Errorf("%d slow, %d down, %d counted", slow, down, failures.of(opClaim))
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("ten calls took %v", took)
	}
	r.Resume()
	testkit.Eventually(t, patience, func() bool { return !s.health.down.Load() }, "the store does not notice that the server is back")
	// The server has by now granted the key to a caller that had been told ErrSlow. It is given back.
	becomes(t, s, "k", "q", replay.Taken)
}

func TestAStoreStartsWithoutItsServer(t *testing.T) {
	addr := testkit.FreeAddr(t)
	var log bytes.Buffer
	failures := &counter{}
	s := open(t, Options{Address: addr, Observer: failures, Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))})
	for range 100 {
		if _, err := storetest.Lookup(t, s, time.Now(), storetest.Key("k")); !errors.Is(err, replay.ErrDown) {
			t.Fatalf("lookup: %v", err)
		}
		s.Save(time.Now(), storetest.Key("k"), storetest.Entry(time.Now(), "x"), time.Hour)
	}
	if failures.of(opLookup) != 100 || failures.of(opSave) != 100 || failures.of(opProbe) == 0 {
		t.Errorf("counted %v", failures.failed)
	}
	m := mini(t)
	m.Close()
	if err := m.StartAddr(addr); err != nil {
		t.Fatal(err)
	}
	becomes(t, s, "k", "p", replay.Taken)
	shut(t, s)
	if n := strings.Count(log.String(), "level=WARN"); n < 1 || n > int(patience/logEvery) || !strings.Contains(log.String(), "store is back") {
		t.Errorf("the log has %d warnings:\n%s", n, log.String())
	}
}

// lockedWriter lets goroutines share a writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestAServerThatNeverAnswersStopsNobody: it accepts connections and says nothing.
func TestAServerThatNeverAnswersStopsNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begun := time.Now()
	s, err := New(t.Context(), Options{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, s, "k", "p"); !errors.Is(err, replay.ErrDown) {
		t.Errorf("claim: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("closing: %v", err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("starting and closing took %v", took)
	}
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{})
	failures := &counter{}
	s := open(t, Options{Address: r.Addr, Observer: failures})
	r.Pause()
	var answered, refused atomic.Int32
	const calls = workers + maxJobs + 500
	for range calls {
		s.Lookup(time.Now(), []replay.Key{storetest.Key("k")}, func(_ []*replay.Entry, err error) {
			answered.Add(1)
			if errors.Is(err, replay.ErrSlow) || errors.Is(err, replay.ErrDown) {
				refused.Add(1)
			}
		})
	}
	if refused.Load() < 500 {
		t.Errorf("%d refused, want 500 at least", refused.Load())
	}
	r.Resume()
	testkit.Eventually(t, patience, func() bool { return answered.Load() == calls }, "not every call is answered")
	if failures.of(opLookup) != int(refused.Load()) {
		t.Errorf("%d refused, %d counted", refused.Load(), failures.of(opLookup))
	}
}

func TestTheQueueIsBoundInBytes(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{})
	failures := &counter{}
	s := open(t, Options{Address: r.Addr, Observer: failures})
	r.Pause()
	e := storetest.Entry(time.Now(), string(make([]byte, maxBytes/8)))
	for i := range 10 {
		s.Save(time.Now(), storetest.Key(fmt.Sprint(i)), e, time.Hour)
	}
	if n := failures.of(opSave); n < 3 {
		t.Errorf("%d of 10 entries of an eighth of the bound refused", n)
	}
	r.Resume()
}

func TestForeignValuesAreMisses(t *testing.T) {
	m := mini(t)
	failures := &counter{}
	s := open(t, Options{Address: m.Addr(), Observer: failures})
	broken := recordValue(replay.Claim{Fingerprint: storetest.Key("p")}, testEntry("x"))
	broken[len(broken)-1] ^= 1
	foreign := map[string]func(name string) error{
		"text":             func(n string) error { return m.Set(n, "hello, this is another program's value, and a long one") },
		"empty":            func(n string) error { return m.Set(n, "") },
		"broken record":    func(n string) error { return m.Set(n, string(broken)) },
		"short record":     func(n string) error { return m.Set(n, magicRecord) },
		"later version":    func(n string) error { return m.Set(n, "BRR\x02"+string(broken[4:])) },
		"list":             func(n string) error { _, err := m.Push(n, "a"); return err },
		"hash":             func(n string) error { m.HSet(n, "a", "b"); return nil },
		"record as entry":  func(n string) error { return m.Set(n, string(recordValue(replay.Claim{}, testEntry("x")))[:40]) },
		"broken but ours ": func(n string) error { return m.Set(n, string(appendEntry(nil, testEntry("x")))[1:]) },
	}
	for name, plant := range foreign {
		t.Run(name, func(t *testing.T) {
			k := storetest.Key(name)
			for _, n := range []string{s.cacheKey(k), s.claimKey(k)} {
				if err := plant(n); err != nil {
					t.Fatal(err)
				}
			}
			if es, err := storetest.Lookup(t, s, time.Now(), k); err != nil || es[0] != nil {
				t.Errorf("lookup: %v, %v", es, err)
			}
			c := mustClaim(t, s, name, "p", replay.Taken)
			mustClaim(t, s, name, "q", replay.Mismatch)
			s.Settle(time.Now(), c, testEntry("mine"), time.Hour)
			becomes(t, s, name, "p", replay.Done)
			s.Save(time.Now(), k, testEntry("mine"), time.Hour)
			testkit.Eventually(t, patience, func() bool {
				es, err := storetest.Lookup(t, s, time.Now(), k)
				return err == nil && es[0] != nil
			}, "a saved entry does not replace the foreign value")
		})
	}
	if len(failures.failed) != 0 {
		t.Errorf("counted as failures: %v", failures.failed)
	}
}

func TestClosingFreesWhatIsHeldAndKeepsWhatIsAnswered(t *testing.T) {
	m := mini(t)
	s, other := open(t, Options{Address: m.Addr()}), open(t, Options{Address: m.Addr()})
	mustClaim(t, s, "left", "p", replay.Taken)
	for i := range 100 {
		k := fmt.Sprint("answered", i)
		s.Settle(time.Now(), mustClaim(t, s, k, "p", replay.Taken), testEntry("x"), time.Hour)
	}
	shut(t, s)
	mustClaim(t, other, "left", "q", replay.Taken)
	for i := range 100 {
		mustClaim(t, other, fmt.Sprint("answered", i), "p", replay.Done)
	}
	if _, err := claim(t, s, "k", "p"); !errors.Is(err, replay.ErrDown) {
		t.Errorf("a closed store says %v", err)
	}
	if n := len(s.held.all()); n != 0 {
		t.Errorf("%d claims are held after closing", n)
	}
}

func TestClosingWhileCallsComeIn(t *testing.T) {
	m := mini(t)
	s := open(t, Options{Address: m.Addr()})
	var begun, answered atomic.Int32
	var callers sync.WaitGroup
	for g := range 4 {
		callers.Go(func() {
			for i := range 200 {
				begun.Add(1)
				s.Claim(time.Now(), storetest.Key(fmt.Sprint(g, i)), storetest.Key("p"), func(c replay.Claim, _ error) {
					answered.Add(1)
					s.Settle(time.Now(), c, testEntry("x"), time.Hour)
				})
			}
		})
	}
	shut(t, s)
	callers.Wait()
	if begun.Load() != answered.Load() {
		t.Errorf("%d calls, %d answers", begun.Load(), answered.Load())
	}
}

func TestAnAddressMustBeOne(t *testing.T) {
	if _, err := New(t.Context(), Options{Address: "redis"}); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
		t.Errorf("%v", err)
	}
}

func TestAWrongPasswordIsAFailureThatShowsNoPassword(t *testing.T) {
	r := testkit.StartRedis(t, testkit.RedisOptions{Password: "right"})
	var log bytes.Buffer
	s := open(t, Options{Address: r.Addr, Username: "default", Password: "WRONGWRONG", Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))})
	if _, err := claim(t, s, "k", "p"); !errors.Is(err, replay.ErrDown) || strings.Contains(err.Error(), "WRONGWRONG") {
		t.Errorf("claim: %v", err)
	}
	shut(t, s)
	if !strings.Contains(log.String(), "WRONGPASS") || strings.Contains(log.String(), "WRONGWRONG") {
		t.Errorf("log: %s", log.String())
	}
}

func TestNoCredentialIsPrinted(t *testing.T) {
	m := mini(t)
	m.RequireAuth("PASSWORDPASSWORD")
	o := Options{Address: m.Addr(), Username: "USERUSER", Password: "PASSWORDPASSWORD"}
	o.Username = ""
	s := open(t, o)
	o.Username = "USERUSER"
	mustClaim(t, s, "k", "p", replay.Taken)
	for _, v := range []any{o, &o, s} {
		asJSON, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%T: %v", v, err)
		}
		out := string(asJSON) + fmt.Sprintf("%v %+v %#v %s %q %x %d", v, v, v, v, v, v, v)
		for _, secret := range []string{"PASSWORDPASSWORD", "USERUSER", fmt.Sprintf("%x", "PASSWORDPASSWORD")} {
			if strings.Contains(out, secret) {
				t.Errorf("%T prints %s: %s", v, secret, out)
			}
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	r := testkit.StartRedis(b, testkit.RedisOptions{})
	s, err := New(b.Context(), Options{Address: r.Addr, Timeout: patience})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}()
	k := storetest.Key("k")
	s.Save(time.Now(), k, testEntry(string(make([]byte, 4096))), time.Hour)
	testkit.Eventually(b, patience, func() bool {
		es, err := storetest.Lookup(b, s, time.Now(), k)
		return err == nil && es[0] != nil
	}, "the entry is not saved")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		done := make(chan error, 1)
		for pb.Next() {
			s.Lookup(time.Now(), []replay.Key{k}, func(_ []*replay.Entry, err error) { done <- err })
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
	})
}
