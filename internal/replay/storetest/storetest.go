// Package storetest holds what every replay.Store must do, as one suite of tests. Only test files import it. It runs on
// the test's goroutine and asks a store from several.
package storetest

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// patience bounds every wait for a store: what a busy machine may take.
const patience = 20 * time.Second

// Backend is a store under test.
type Backend struct {
	Store replay.Store
	// Other is another replica's store on the same data; nil where there is no such thing.
	Other replay.Store
	// Now is the time that calls are given.
	Now func() time.Time
	// Advance lets time pass for the store's data; nil: it passes by itself.
	Advance func(time.Duration)
}

// Run tests the store that open makes for each test: empty, and torn down with the test.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, b Backend)
	}{
		{"what was never saved is absent", testAbsent},
		{"what was saved is found whole", testSaved},
		{"saving again replaces", testReplaced},
		{"a stale entry is found until its time to keep has passed", testExpiry},
		{"nothing is kept for no time", testNoTime},
		{"a claim has one owner", testOneOwner},
		{"a released key is free", testReleased},
		{"a settled key is done for its payload", testSettled},
		{"a settled key is free when its time has passed", testSettledExpiry},
		{"an answer without time to keep frees its key", testSettledNoTime},
		{"who has ended a claim cannot end the next one", testOldOwner},
		{"claims and entries of one key do not meet", testApart},
		{"a callback may call the store", testReentrant},
		{"of many claims at once one is taken", testRush},
		{"replicas share claims and answers", testReplicas},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// Key makes a key of a test, the same one for the same text.
func Key(text string) replay.Key {
	return replay.NewKeys([]byte("storetest")).Fingerprint([]byte(text))
}

// Entry is an answer with everything set, stored at now.
func Entry(now time.Time, body string) *replay.Entry {
	return &replay.Entry{
		Status:  202,
		Headers: []outcome.Header{{Name: "content-type", Value: "application/json"}, {Name: "link", Value: "a"}, {Name: "link", Value: "b"}},
		Body:    []byte(body), Dialect: "openai-chat", Tier: "small", Reason: outcome.DegradedQueuePressure,
		Stored: now, TTL: time.Minute,
	}
}

// Lookup asks a store and waits for its answer.
func Lookup(t testing.TB, s replay.Store, now time.Time, keys ...replay.Key) ([]*replay.Entry, error) {
	t.Helper()
	return wait(t, "lookup", func(done func([]*replay.Entry, error)) { s.Lookup(now, keys, done) })
}

// Claim asks a store and waits for its answer.
func Claim(t testing.TB, s replay.Store, now time.Time, k, fp replay.Key) (replay.Claim, error) {
	t.Helper()
	return wait(t, "claim", func(done func(replay.Claim, error)) { s.Claim(now, k, fp, done) })
}

// wait starts an operation and returns what its callback got; a second call of it fails the test.
func wait[T any](t testing.TB, what string, start func(done func(T, error))) (T, error) {
	t.Helper()
	type result struct {
		v   T
		err error
	}
	got := make(chan result, 1)
	start(func(v T, err error) {
		select {
		case got <- result{v, err}:
		default:
			t.Errorf("%s: the callback was called twice", what)
		}
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-got:
		return r.v, r.err
	case <-timer.C:
		t.Fatalf("%s: no callback after %v", what, patience)
		return *new(T), nil
	}
}

func (b Backend) lookup(t *testing.T, keys ...replay.Key) []*replay.Entry {
	t.Helper()
	es, err := Lookup(t, b.Store, b.Now(), keys...)
	if err != nil || len(es) != len(keys) {
		t.Fatalf("lookup: %d entries for %d keys, %v", len(es), len(keys), err)
	}
	return es
}

func (b Backend) claimAt(t *testing.T, s replay.Store, key, payload string) replay.Claim {
	t.Helper()
	c, err := Claim(t, s, b.Now(), Key(key), Key(payload))
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return c
}

func (b Backend) claim(t *testing.T, key, payload string) replay.Claim {
	t.Helper()
	return b.claimAt(t, b.Store, key, payload)
}

// expect checks what a claim becomes, which must hold nothing when it is taken by mistake.
func (b Backend) expect(t *testing.T, want replay.ClaimState, key, payload string) replay.Claim {
	t.Helper()
	c := b.claim(t, key, payload)
	if c.State != want {
		t.Fatalf("claim of %s for %s: %s, want %s", key, payload, c.State, want)
	}
	return c
}

// settled waits until a claim at s is Done: Settle tells nobody when it is over.
func (b Backend) settled(t *testing.T, s replay.Store, key, payload string) replay.Claim {
	t.Helper()
	var c replay.Claim
	testkit.Eventually(t, patience, func() bool {
		if c = b.claimAt(t, s, key, payload); c.State == replay.Taken {
			t.Fatalf("claim of %s for %s: taken before it was settled", key, payload)
		}
		return c.State == replay.Done
	}, "the settled key is not done")
	return c
}

// taken waits until a claim is Taken.
func (b Backend) taken(t *testing.T, key, payload string) replay.Claim {
	t.Helper()
	var c replay.Claim
	testkit.Eventually(t, patience, func() bool {
		c = b.claim(t, key, payload)
		return c.State == replay.Taken
	}, "the key is not free")
	return c
}

func (b Backend) advance(d time.Duration) {
	if b.Advance != nil {
		b.Advance(d)
	}
}

// found waits until a saved entry can be read.
func (b Backend) found(t *testing.T, key string, want *replay.Entry) {
	t.Helper()
	var diff string
	testkit.Eventually(t, patience, func() bool {
		got := b.lookup(t, Key(key))[0]
		diff = Diff(want, got)
		return diff == ""
	}, "the saved entry is not found")
	if diff != "" {
		t.Error(diff)
	}
}

// Diff compares entries; times to the millisecond.
func Diff(want, got *replay.Entry) string {
	whole := cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))
	return cmp.Diff(want, got, whole, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(time.Millisecond))
}

func testAbsent(t *testing.T, b Backend) {
	for i, e := range b.lookup(t, Key("a"), Key("b")) {
		if e != nil {
			t.Errorf("entry %d: %v", i, e)
		}
	}
	if es := b.lookup(t); len(es) != 0 {
		t.Errorf("no keys: %d entries", len(es))
	}
}

func testSaved(t *testing.T, b Backend) {
	entries := map[string]*replay.Entry{
		"full":   Entry(b.Now(), "{\"a\":1}"),
		"binary": Entry(b.Now(), "\x00\xff\r\n$5\r\n"),
		"bare":   {Status: 200, Stored: b.Now()},
		"large":  Entry(b.Now(), string(make([]byte, 1<<20))),
	}
	for name, e := range entries {
		b.Store.Save(b.Now(), Key(name), e, time.Hour)
	}
	for name, e := range entries {
		b.found(t, name, e)
	}
	es := b.lookup(t, Key("no"), Key("bare"), Key("no"), Key("full"))
	if es[0] != nil || es[2] != nil || Diff(entries["bare"], es[1]) != "" || Diff(entries["full"], es[3]) != "" {
		t.Errorf("entries are not in the order of the keys: %v", es)
	}
}

func testReplaced(t *testing.T, b Backend) {
	for _, body := range []string{"first", "second"} {
		e := Entry(b.Now(), body)
		b.Store.Save(b.Now(), Key("k"), e, time.Hour)
		b.found(t, "k", e)
	}
}

func testExpiry(t *testing.T, b Backend) {
	const keep = time.Second
	e := Entry(b.Now(), "x")
	e.TTL = 0
	b.Store.Save(b.Now(), Key("long"), e, time.Hour)
	b.found(t, "long", e)
	b.Store.Save(b.Now(), Key("short"), e, keep)
	testkit.Eventually(t, patience, func() bool {
		b.advance(keep) // once is not enough: the entry may be on its way to the store yet
		return b.lookup(t, Key("short"))[0] == nil
	}, "the entry outlives its time to keep")
	b.found(t, "long", e)
}

func testNoTime(t *testing.T, b Backend) {
	for _, keep := range []time.Duration{0, -time.Second} {
		b.Store.Save(b.Now(), Key("k"), Entry(b.Now(), "x"), keep)
	}
	// The next entry is seen, so the ones before have been dealt with.
	e := Entry(b.Now(), "y")
	b.Store.Save(b.Now(), Key("next"), e, time.Hour)
	b.found(t, "next", e)
	if got := b.lookup(t, Key("k"))[0]; got != nil {
		t.Errorf("found %v", got)
	}
}

func testOneOwner(t *testing.T, b Backend) {
	c := b.expect(t, replay.Taken, "k", "payload")
	if c.Key != Key("k") || c.Fingerprint != Key("payload") || c.Entry != nil {
		t.Error("the claim does not say what was claimed")
	}
	b.expect(t, replay.Busy, "k", "payload")
	b.expect(t, replay.Mismatch, "k", "another payload")
	b.expect(t, replay.Taken, "another key", "payload")
}

func testReleased(t *testing.T, b Backend) {
	for _, payload := range []string{"p", "p", "q"} {
		c := b.taken(t, "k", payload)
		b.expect(t, replay.Busy, "k", payload)
		b.Store.Release(b.Now(), c)
	}
	b.taken(t, "k", "p")
}

func testSettled(t *testing.T, b Backend) {
	c := b.expect(t, replay.Taken, "k", "p")
	e := Entry(b.Now(), "answer\x00")
	b.Store.Settle(b.Now(), c, e, time.Hour)
	got := b.settled(t, b.Store, "k", "p")
	if diff := Diff(e, got.Entry); diff != "" {
		t.Error(diff)
	}
	if m := b.expect(t, replay.Mismatch, "k", "q"); m.Entry != nil {
		t.Error("a mismatch comes with the answer to another payload")
	}
	b.Store.Release(b.Now(), c)
	b.Store.Settle(b.Now(), c, Entry(b.Now(), "another answer"), time.Hour)
	b.Store.Release(b.Now(), got) // it is not taken, so there is nothing to release
	again := b.expect(t, replay.Done, "k", "p")
	if diff := Diff(e, again.Entry); diff != "" {
		t.Error(diff)
	}
}

func testSettledExpiry(t *testing.T, b Backend) {
	const keep = 3 * time.Second
	b.Store.Settle(b.Now(), b.expect(t, replay.Taken, "k", "p"), Entry(b.Now(), "x"), keep)
	b.settled(t, b.Store, "k", "p")
	b.advance(keep)
	b.taken(t, "k", "q")
}

func testSettledNoTime(t *testing.T, b Backend) {
	b.Store.Settle(b.Now(), b.expect(t, replay.Taken, "k", "p"), Entry(b.Now(), "x"), 0)
	b.taken(t, "k", "q")
}

func testOldOwner(t *testing.T, b Backend) {
	old := b.expect(t, replay.Taken, "k", "p")
	b.Store.Release(b.Now(), old)
	owner := b.taken(t, "k", "p")
	b.Store.Release(b.Now(), old)
	b.Store.Settle(b.Now(), old, Entry(b.Now(), "old"), time.Hour)
	b.expect(t, replay.Busy, "k", "p")
	e := Entry(b.Now(), "new")
	b.Store.Settle(b.Now(), owner, e, time.Hour)
	if diff := Diff(e, b.settled(t, b.Store, "k", "p").Entry); diff != "" {
		t.Error(diff)
	}
}

func testApart(t *testing.T, b Backend) {
	e := Entry(b.Now(), "entry")
	b.Store.Save(b.Now(), Key("k"), e, time.Hour)
	b.found(t, "k", e)
	c := b.expect(t, replay.Taken, "k", "p")
	b.Store.Settle(b.Now(), c, Entry(b.Now(), "answer"), time.Hour)
	b.settled(t, b.Store, "k", "p")
	b.found(t, "k", e)
}

func testReentrant(t *testing.T, b Backend) {
	got, err := wait(t, "claim within a lookup", func(done func(replay.Claim, error)) {
		b.Store.Lookup(b.Now(), []replay.Key{Key("k")}, func([]*replay.Entry, error) {
			b.Store.Claim(b.Now(), Key("k"), Key("p"), done)
		})
	})
	if err != nil || got.State != replay.Taken {
		t.Errorf("%s, %v", got.State, err)
	}
}

func testRush(t *testing.T, b Backend) {
	const claims = 64
	var mu sync.Mutex
	states := map[replay.ClaimState]int{}
	var all sync.WaitGroup
	all.Add(claims)
	for range claims {
		go b.Store.Claim(b.Now(), Key("k"), Key("p"), func(c replay.Claim, err error) {
			defer all.Done()
			mu.Lock()
			defer mu.Unlock()
			states[c.State]++
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if want := map[replay.ClaimState]int{replay.Taken: 1, replay.Busy: claims - 1}; cmp.Diff(want, states) != "" {
		t.Errorf("states %v, want %v", states, want)
	}
}

func testReplicas(t *testing.T, b Backend) {
	if b.Other == nil {
		return // one process is all there is
	}
	c := b.expect(t, replay.Taken, "k", "p")
	if got := b.claimAt(t, b.Other, "k", "p"); got.State != replay.Busy {
		t.Errorf("the same payload at the other replica: %s", got.State)
	}
	if got := b.claimAt(t, b.Other, "k", "q"); got.State != replay.Mismatch {
		t.Errorf("another payload at the other replica: %s", got.State)
	}
	e := Entry(b.Now(), "answer")
	b.Store.Settle(b.Now(), c, e, time.Hour)
	if diff := Diff(e, b.settled(t, b.Other, "k", "p").Entry); diff != "" {
		t.Error(diff)
	}
	cached := Entry(b.Now(), "entry")
	b.Store.Save(b.Now(), Key("c"), cached, time.Hour)
	Backend{Store: b.Other, Now: b.Now}.found(t, "c", cached)
}
