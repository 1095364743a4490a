package replay

import (
	"container/heap"
	"container/list"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// biggestShare is the part of a memory store that one entry may take at most: 1/8.
const biggestShare = 8

// Memory is a Store in this process, bounded in bytes. When it is full, cache entries go first, the least recently used
// one before the others; answers of idempotency keys go only for other such answers, for each one forgotten may be paid
// for twice. Claims are not counted: there are no more of them than requests in flight. Make one with NewMemory.
type Memory struct {
	max int64

	mu      sync.Mutex // guards the fields below
	used    int64
	entries shelf // of Save
	records shelf // of Settle
	claims  map[Key]Claim
	tokens  uint64
	expiry  byUntil // what is on the shelves
}

// shelf holds kept entries, the most recently used first.
type shelf struct {
	byKey  map[Key]*kept
	recent list.List // of *kept
}

// kept is one entry on a shelf.
type kept struct {
	shelf       *shelf
	key         Key
	fingerprint Key // of a record
	entry       *Entry
	size        int64
	until       time.Time
	place       *list.Element
	pos         int // in the expiry heap
}

// NewMemory makes a store that keeps at most max bytes of answers, and no answer of more than an eighth of that.
func NewMemory(max int64) *Memory {
	return &Memory{
		max:     max,
		entries: shelf{byKey: make(map[Key]*kept)},
		records: shelf{byKey: make(map[Key]*kept)},
		claims:  make(map[Key]Claim),
	}
}

// Lookup is Store's; done is called at once.
func (m *Memory) Lookup(now time.Time, keys []Key, done func([]*Entry, error)) {
	done(m.lookup(now, keys), nil)
}

func (m *Memory) lookup(now time.Time, keys []Key) []*Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	found := make([]*Entry, len(keys))
	for i, k := range keys {
		if kp := m.entries.byKey[k]; kp != nil {
			found[i] = kp.entry
			m.entries.recent.MoveToFront(kp.place)
		}
	}
	return found
}

// Save is Store's. Cache entries make room for it, answers of idempotency keys do not.
func (m *Memory) Save(now time.Time, k Key, e *Entry, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	m.putLocked(&kept{shelf: &m.entries, key: k, entry: e, until: now.Add(keep)}, now)
}

// Claim is Store's; done is called at once.
func (m *Memory) Claim(now time.Time, k, fp Key, done func(Claim, error)) {
	done(m.claim(now, k, fp), nil)
}

func (m *Memory) claim(now time.Time, k, fp Key) Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	if kp := m.records.byKey[k]; kp != nil {
		if kp.fingerprint != fp {
			return Claim{State: Mismatch}
		}
		m.records.recent.MoveToFront(kp.place)
		return Claim{State: Done, Entry: kp.entry}
	}
	if held, ok := m.claims[k]; ok {
		if held.Fingerprint != fp {
			return Claim{State: Mismatch}
		}
		return Claim{State: Busy}
	}
	m.tokens++
	c := Claim{State: Taken, Key: k, Fingerprint: fp, Token: strconv.FormatUint(m.tokens, 10)}
	m.claims[k] = c
	return c
}

// Settle is Store's.
func (m *Memory) Settle(now time.Time, c Claim, e *Entry, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	if m.endLocked(c) {
		m.putLocked(&kept{shelf: &m.records, key: c.Key, fingerprint: c.Fingerprint, entry: e, until: now.Add(keep)}, now)
	}
}

// Release is Store's.
func (m *Memory) Release(now time.Time, c Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	m.endLocked(c)
}

// endLocked ends a claim, if it is still the one that holds its key.
func (m *Memory) endLocked(c Claim) bool {
	if c.State != Taken || m.claims[c.Key].Token != c.Token {
		return false
	}
	delete(m.claims, c.Key)
	return true
}

// putLocked puts an entry on its shelf, in place of an older one of its key, if room for it can be made.
func (m *Memory) putLocked(kp *kept, now time.Time) {
	if old := kp.shelf.byKey[kp.key]; old != nil {
		m.dropLocked(old)
	}
	kp.size = int64(kp.entry.Size())
	if kp.size > m.max/biggestShare || !kp.until.After(now) || !m.makeRoomLocked(kp) {
		return
	}
	kp.place = kp.shelf.recent.PushFront(kp)
	kp.shelf.byKey[kp.key] = kp
	heap.Push(&m.expiry, kp)
	m.used += kp.size
}

// makeRoomLocked drops the least recently used entries until kp fits.
func (m *Memory) makeRoomLocked(kp *kept) bool {
	for m.used+kp.size > m.max {
		last := m.entries.recent.Back()
		if last == nil && kp.shelf == &m.records {
			last = m.records.recent.Back()
		}
		if last == nil {
			return false
		}
		m.dropLocked(last.Value.(*kept))
	}
	return true
}

// expireLocked drops everything whose time to keep has passed. Each entry is dropped once, so that on average a call
// drops no more than a call has put in.
func (m *Memory) expireLocked(now time.Time) {
	for len(m.expiry) > 0 && !m.expiry[0].until.After(now) {
		m.dropLocked(m.expiry[0])
	}
}

func (m *Memory) dropLocked(kp *kept) {
	kp.shelf.recent.Remove(kp.place)
	delete(kp.shelf.byKey, kp.key)
	heap.Remove(&m.expiry, kp.pos)
	m.used -= kp.size
}

// Size is the bytes that answers take now.
func (m *Memory) Size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Format prints nothing of what the store holds.
func (m *Memory) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "memory(hidden)") }

// byUntil is a heap, the entry that expires next on top.
type byUntil []*kept

func (h byUntil) Len() int           { return len(h) }
func (h byUntil) Less(i, j int) bool { return h[i].until.Before(h[j].until) }

func (h byUntil) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push is heap.Interface's.
func (h *byUntil) Push(x any) {
	kp := x.(*kept)
	kp.pos = len(*h)
	*h = append(*h, kp)
}

// Pop is heap.Interface's.
func (h *byUntil) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
