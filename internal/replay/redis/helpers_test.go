package redis

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/replay/storetest"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// patience bounds every wait, and is the timeout of stores whose answers a test wants, however busy the machine is.
const patience = 20 * time.Second

// counter is an Observer.
type counter struct {
	mu     sync.Mutex
	failed map[string]int
}

func (c *counter) StoreFailed(op string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = map[string]int{}
	}
	c.failed[op]++
}

func (c *counter) of(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed[op]
}

// open makes a store that is closed with the test. Its timeout is patience unless o says otherwise.
func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, s) })
	return s
}

// shut closes a store as the process does, except that it may have been closed before.
func shut(t *testing.T, s *Store) {
	select {
	case <-s.stop:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil && !s.health.down.Load() {
		t.Errorf("closing: %v", err)
	}
}

// crash ends a store as kill -9 does: nothing more reaches the server.
func crash(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	s.cancel()
	s.health.down.Store(true)
	_ = s.Close(ctx) // it says what it could not send, which is the point
}

func mini(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func claim(t *testing.T, s *Store, key, payload string) (replay.Claim, error) {
	t.Helper()
	return storetest.Claim(t, s, time.Now(), storetest.Key(key), storetest.Key(payload))
}

// mustClaim claims and checks the state.
func mustClaim(t *testing.T, s *Store, key, payload string, want replay.ClaimState) replay.Claim {
	t.Helper()
	c, err := claim(t, s, key, payload)
	if err != nil || c.State != want {
		t.Fatalf("claim of %s: %s, %v; want %s", key, c.State, err, want)
	}
	return c
}

// becomes waits until a claim has the state.
func becomes(t *testing.T, s *Store, key, payload string, want replay.ClaimState) replay.Claim {
	t.Helper()
	var c replay.Claim
	testkit.Eventually(t, patience, func() bool {
		var err error
		c, err = claim(t, s, key, payload)
		return err == nil && c.State == want
	}, "the claim of "+key+" does not become "+want.String())
	return c
}
