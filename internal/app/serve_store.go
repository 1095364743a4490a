package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/replay/redis"
	"github.com/envoy-brownout/brownout/policy"
)

// minSecret is the shortest secret worth the name, in bytes.
const minSecret = 16

// storeGrace is how long the store may take to send what it still holds when brownout ends.
const storeGrace = time.Second

// openStore makes the store the policy names, and reads the secrets it needs.
func (s *server) openStore(ctx context.Context, snap *policy.Snapshot) error {
	s.storage = snap.Store
	var err error
	if f := snap.Store.SecretFile; f != "" {
		if s.secret, err = readSecret("store.secret_file", f); err != nil {
			return err
		}
		if len(s.secret) < minSecret {
			return fmt.Errorf("store.secret_file %s: %d bytes are too few for a secret; write at least %d random ones (openssl rand -hex 32)", f, len(s.secret), minSecret)
		}
	}
	r := snap.Store.Redis
	if r == nil {
		s.store = replay.NewMemory(snap.Store.Memory)
		return nil
	}
	password := ""
	if r.PasswordFile != "" {
		secret, err := readSecret("store.redis.password_file", r.PasswordFile)
		if err != nil {
			return err
		}
		password = string(secret)
	}
	s.store, err = redis.New(ctx, redis.Options{Address: r.Address, Username: r.Username, Password: password, TLS: r.TLS, Prefix: r.Prefix,
		Timeout: r.Timeout, Logger: s.log, Observer: s.metrics})
	return err
}

func readSecret(field, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (make one: openssl rand -hex 32 > %s)", field, err, path)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, fmt.Errorf("%s %s is empty", field, path)
	}
	return b, nil
}

// closeStore gives the store a moment to send what it holds.
func (s *server) closeStore(ctx context.Context) {
	c, ok := s.store.(interface{ Close(context.Context) error })
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeGrace)
	defer cancel()
	_ = c.Close(ctx) // the process ends; what was not sent is lost, as the store's log says
}

func sameStore(a, b policy.Store) bool {
	ar, br := a.Redis, b.Redis
	a.Redis, b.Redis = nil, nil
	if a != b || (ar == nil) != (br == nil) {
		return false
	}
	return ar == nil || *ar == *br
}
