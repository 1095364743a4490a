package replay_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/replay/storetest"
)

// start is when the clocks of the tests begin.
func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func TestMemoryIsAStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Backend {
		now := start()
		return storetest.Backend{
			Store:   replay.NewMemory(64 << 20),
			Now:     func() time.Time { return now },
			Advance: func(d time.Duration) { now = now.Add(d) },
		}
	})
}

// sized is an entry that takes n bytes in a store.
func sized(n int) *replay.Entry {
	e := &replay.Entry{Status: 200, Stored: start()}
	e.Body = make([]byte, n-e.Size())
	return e
}

func has(t *testing.T, m *replay.Memory, key string) bool {
	t.Helper()
	es, err := storetest.Lookup(t, m, start(), storetest.Key(key))
	if err != nil {
		t.Fatal(err)
	}
	return es[0] != nil
}

func TestMemoryForgetsTheEntryThatWasNotUsedForLongest(t *testing.T) {
	m := replay.NewMemory(10_000)
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		m.Save(start(), storetest.Key(k), sized(1250), time.Hour)
	}
	if !has(t, m, "a") { // and so a is used
		t.Fatal("eight eighths do not fit")
	}
	m.Save(start(), storetest.Key("i"), sized(1250), time.Hour)
	if has(t, m, "b") || !has(t, m, "a") || !has(t, m, "i") {
		t.Error("another than the least recently used entry has gone")
	}
}

func TestMemoryRefusesAnEntryOfMoreThanAnEighth(t *testing.T) {
	m := replay.NewMemory(10_000)
	m.Save(start(), storetest.Key("a"), sized(1251), time.Hour)
	if has(t, m, "a") || m.Size() != 0 {
		t.Error("it was kept")
	}
	m.Save(start(), storetest.Key("a"), sized(1250), time.Hour)
	m.Save(start(), storetest.Key("a"), sized(1251), time.Hour)
	if has(t, m, "a") {
		t.Error("the older entry stands in for one that was refused")
	}
	c, _ := storetest.Claim(t, m, start(), storetest.Key("k"), storetest.Key("p"))
	m.Settle(start(), c, sized(1251), time.Hour)
	if c, _ := storetest.Claim(t, m, start(), storetest.Key("k"), storetest.Key("p")); c.State != replay.Taken {
		t.Errorf("the key of an answer that was refused is %s", c.State)
	}
}

func TestMemoryForgetsEntriesBeforeAnswersOfIdempotencyKeys(t *testing.T) {
	m := replay.NewMemory(10_000)
	claim := func(k string) replay.Claim {
		c, _ := storetest.Claim(t, m, start(), storetest.Key(k), storetest.Key("p"))
		return c
	}
	settle := func(k string) { m.Settle(start(), claim(k), sized(1250), time.Hour) }
	for _, k := range []string{"1", "2", "3", "4"} {
		settle(k)
		m.Save(start(), storetest.Key("e"+k), sized(1250), time.Hour)
	}
	settle("5")
	if has(t, m, "e1") || claim("1").State != replay.Done {
		t.Error("an answer was forgotten while there was an entry")
	}
	for _, k := range []string{"6", "7", "8"} {
		settle(k)
	}
	m.Save(start(), storetest.Key("e"), sized(1250), time.Hour)
	if has(t, m, "e") {
		t.Error("an entry pushed out an answer")
	}
	settle("9") // "1" was used above, so "2" is the oldest
	if claim("2").State != replay.Taken || claim("1").State != replay.Done || claim("9").State != replay.Done {
		t.Error("another than the least recently used answer has gone")
	}
}

// TestMemoryAgainstAModel walks at random. The model knows what could be there; the store may have forgotten it, but may not
// answer with anything else, nor hold more than its bound, nor forget a claim that is held.
func TestMemoryAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const bound = 20_000
		m := replay.NewMemory(bound)
		now := start()
		type saved struct {
			e     *replay.Entry
			until time.Time
		}
		entries, records := map[int]saved{}, map[int]saved{}
		payloads, claims := map[int]int{}, map[int]replay.Claim{}
		key := func(n int) replay.Key { return storetest.Key(string(rune('a' + n))) }
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			k := rapid.IntRange(0, 9).Draw(rt, "key")
			keep := time.Duration(rapid.IntRange(-1, 20).Draw(rt, "keep")) * time.Second
			e := sized(rapid.IntRange(600, 3000).Draw(rt, "size"))
			switch rapid.IntRange(0, 5).Draw(rt, "op") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, "seconds")) * time.Second)
			case 1:
				m.Save(now, key(k), e, keep)
				entries[k] = saved{e, now.Add(keep)}
			case 2:
				m.Lookup(now, []replay.Key{key(k)}, func(es []*replay.Entry, _ error) {
					if s := entries[k]; es[0] != nil && (es[0] != s.e || !s.until.After(now)) {
						rt.Fatalf("entry %d is not the last one saved, or it is past its time", k)
					}
				})
			case 3:
				p := rapid.IntRange(0, 1).Draw(rt, "payload")
				m.Claim(now, key(k), key(p), func(c replay.Claim, _ error) {
					held, isHeld := claims[k]
					same := payloads[k] == p
					switch c.State {
					case replay.Taken:
						if isHeld {
							rt.Fatalf("key %d is taken twice", k)
						}
						claims[k], payloads[k] = c, p
						delete(records, k)
					case replay.Busy:
						if !isHeld || !same || held.State != replay.Taken {
							rt.Fatalf("key %d is busy, but not with this payload", k)
						}
					case replay.Mismatch:
						if same || !isHeld && !records[k].until.After(now) {
							rt.Fatalf("key %d is another payload's, but there is none", k)
						}
					case replay.Done:
						if s := records[k]; isHeld || !same || c.Entry != s.e || !s.until.After(now) {
							rt.Fatalf("key %d is done with another answer", k)
						}
					}
				})
			case 4:
				m.Settle(now, claims[k], e, keep)
				if _, ok := claims[k]; ok {
					records[k] = saved{e, now.Add(keep)}
				}
				delete(claims, k)
			case 5:
				m.Release(now, claims[k])
				delete(claims, k)
			}
			if n := m.Size(); n < 0 || n > bound {
				rt.Fatalf("%d bytes are kept, the bound is %d", n, bound)
			}
		}
		m.Lookup(now.Add(time.Hour), nil, func([]*replay.Entry, error) {})
		if n := m.Size(); n != 0 {
			rt.Fatalf("%d bytes are left when all has expired", n)
		}
	})
}

func TestMemoryUnderManyGoroutines(t *testing.T) {
	m := replay.NewMemory(50_000)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				k := storetest.Key(string(rune('a' + (g+i)%20)))
				now := start().Add(time.Duration(i) * time.Millisecond)
				m.Save(now, k, sized(1000), time.Second)
				m.Lookup(now, []replay.Key{k}, func([]*replay.Entry, error) {})
				m.Claim(now, k, k, func(c replay.Claim, _ error) {
					if i%2 == 0 {
						m.Settle(now, c, sized(1000), time.Second)
					} else {
						m.Release(now, c)
					}
				})
			}
		})
	}
	all.Wait()
	if n := m.Size(); n > 50_000 {
		t.Errorf("%d bytes are kept", n)
	}
}
