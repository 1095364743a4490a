package redis

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/envoy-brownout/brownout/internal/replay"
)

// cacheKey and claimKey are the server's names of a key.
func (s *Store) cacheKey(k replay.Key) string { return s.opts.Prefix + "c:" + encoded(k) }
func (s *Store) claimKey(k replay.Key) string { return s.opts.Prefix + "i:" + encoded(k) }

func encoded(k replay.Key) string { return base64.RawURLEncoding.EncodeToString(k[:]) }

// errUnreadable is a record that came back unreadable after it was dropped.
var errUnreadable = errors.New("the record of an idempotency key cannot be read, and comes back when it is dropped")

// Lookup is replay.Store's. now is not needed: the server drops what is past its time to keep.
func (s *Store) Lookup(_ time.Time, keys []replay.Key, done func([]*replay.Entry, error)) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = s.cacheKey(k)
	}
	var found []*replay.Entry
	s.start(&job{
		op: opLookup,
		do: func(ctx context.Context) (err error) {
			found, err = s.lookup(ctx, names)
			return err
		},
		done: func(err error) {
			if err != nil {
				done(nil, err)
				return
			}
			done(found, nil)
		},
	})
}

func (s *Store) lookup(ctx context.Context, names []string) ([]*replay.Entry, error) {
	found := make([]*replay.Entry, len(names))
	if len(names) == 0 {
		return found, nil
	}
	client, err := s.link.get()
	if err != nil {
		return nil, err
	}
	values, err := client.Do(ctx, client.B().Mget().Key(names...).Build()).ToArray()
	if err != nil {
		return nil, err
	}
	for i := range min(len(values), len(found)) {
		// An absent value, or one of another type, is no string.
		if b, err := values[i].AsBytes(); err == nil {
			if e, ok := decodeEntry(b); ok {
				found[i] = e
			}
		}
	}
	return found, nil
}

// Save is replay.Store's.
func (s *Store) Save(_ time.Time, k replay.Key, e *replay.Entry, keep time.Duration) {
	if keep < time.Millisecond {
		return
	}
	s.start(&job{
		op:   opSave,
		size: int64(e.Size()),
		do: func(ctx context.Context) error {
			client, err := s.link.get()
			if err != nil {
				return err
			}
			value := rueidis.BinaryString(appendEntry(make([]byte, 0, e.Size()), e))
			return client.Do(ctx, client.B().Set().Key(s.cacheKey(k)).Value(value).PxMilliseconds(keep.Milliseconds()).Build()).Error()
		},
	})
}

// Claim is replay.Store's. What the server may have granted to a caller that was told otherwise is given back.
func (s *Store) Claim(_ time.Time, k, fp replay.Key, done func(replay.Claim, error)) {
	mine := replay.Claim{State: replay.Taken, Key: k, Fingerprint: fp, Token: rand.Text()}
	var got replay.Claim
	s.start(&job{
		op: opClaim,
		do: func(ctx context.Context) (err error) {
			got, err = s.claim(ctx, mine)
			return err
		},
		done: func(err error) {
			if errors.Is(err, errUncertain) {
				s.Release(time.Time{}, mine)
			}
			if err != nil {
				done(replay.Claim{}, err)
				return
			}
			if got.State == replay.Taken {
				s.held.add(got)
			}
			done(got, nil)
		},
		late: func(err error) {
			if err != nil || got.State == replay.Taken {
				s.Release(time.Time{}, mine)
			}
		},
	})
}

// claim asks the server. A record that cannot be read counts as absent: it is dropped, and asked for once more.
func (s *Store) claim(ctx context.Context, mine replay.Claim) (replay.Claim, error) {
	name := s.claimKey(mine.Key)
	for range 2 {
		r, err := s.eval(ctx, claimScript, name, rueidis.BinaryString(claimValue(mine)), milliseconds(s.opts.Lease), magicRecord)
		if err != nil {
			return replay.Claim{}, err
		}
		reply, err := r.AsStrSlice()
		if err != nil {
			return replay.Claim{}, err
		}
		if got, ok := claimReply(reply, mine); ok {
			return got, nil
		}
		if len(reply) < 2 {
			break
		}
		if _, err := s.eval(ctx, dropScript, name, reply[1]); err != nil {
			return replay.Claim{}, err
		}
	}
	return replay.Claim{}, errUnreadable
}

// claimReply reads what claimScript answered. False: it is a record that cannot be read.
func claimReply(reply []string, mine replay.Claim) (replay.Claim, bool) {
	if len(reply) == 0 {
		return replay.Claim{}, false
	}
	var e *replay.Entry
	if len(reply) > 1 {
		var ok bool
		if e, ok = decodeRecord([]byte(reply[1])); !ok {
			return replay.Claim{}, false
		}
	}
	switch reply[0] {
	case "taken":
		return mine, true
	case "busy":
		return replay.Claim{State: replay.Busy}, true
	case "mismatch":
		return replay.Claim{State: replay.Mismatch}, true
	}
	return replay.Claim{State: replay.Done, Entry: e}, e != nil
}

// Settle is replay.Store's. An answer that does not reach the server now is tried again, while there is room to hold it.
func (s *Store) Settle(now time.Time, c replay.Claim, e *replay.Entry, keep time.Duration) {
	if keep < time.Millisecond {
		s.Release(now, c)
		return
	}
	if c.State != replay.Taken || !s.held.settle(time.Now(), c, e, keep) {
		return
	}
	s.start(&job{op: opSettle, do: func(ctx context.Context) error { return s.send(ctx, c.Token) }})
}

// Release is replay.Store's.
func (s *Store) Release(_ time.Time, c replay.Claim) {
	if c.State != replay.Taken {
		return
	}
	s.held.release(time.Now(), c)
	s.start(&job{op: opRelease, do: func(ctx context.Context) error { return s.send(ctx, c.Token) }})
}
