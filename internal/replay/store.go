package replay

import (
	"errors"
	"time"
)

// What a store's callback gets instead of a result. The request goes on without the store.
var (
	ErrSlow = errors.New("replay store: no answer in time; look at the store's load and at store.redis.timeout")
	ErrDown = errors.New("replay store: not reachable; look at store.redis.address and at the server")
)

// Store keeps answers. Its methods never block. Entries that go in and come out are shared: nobody changes them.
type Store interface {
	// Lookup finds the entries of keys, fresh or not; done gets one for each key, nil where there is none. done is called
	// exactly once, with no lock held: perhaps before Lookup returns, or later on another goroutine, but not after the
	// store's timeout.
	Lookup(now time.Time, keys []Key, done func([]*Entry, error))
	// Save keeps an entry until now + keep, if there is room for it.
	Save(now time.Time, k Key, e *Entry, keep time.Duration)
	// Claim asks for the right to answer an idempotency key. fp is the fingerprint of the payload. done is called like
	// Lookup's. Whoever gets Taken calls Settle or Release exactly once; with any other state, or an error, nothing is held.
	Claim(now time.Time, k Key, fp Key, done func(Claim, error))
	// Settle ends a claim that was Taken: its answer is kept until now + keep and every later Claim of the key is Done. A
	// claim that has passed to somebody else by now stays theirs. An entry there is no room for releases the key.
	Settle(now time.Time, c Claim, e *Entry, keep time.Duration)
	// Release ends a claim that was Taken, without an answer: the key is free again.
	Release(now time.Time, c Claim)
}

// ClaimState is what a store says to a Claim. The zero value is no answer.
type ClaimState uint8

// The states.
const (
	NoClaim  ClaimState = iota
	Taken               // the caller owns the key and answers
	Busy                // somebody else is answering the same payload at this moment
	Done                // answered: Entry is the answer
	Mismatch            // the key belongs to another payload, answered or not
	numClaimStates
)

var claimStateNames = [numClaimStates]string{"none", "taken", "busy", "done", "mismatch"}

// String names the state in dumps and tests.
func (s ClaimState) String() string {
	if s < numClaimStates {
		return claimStateNames[s]
	}
	return "invalid"
}

// Claim is what became of a Claim call. Key, Fingerprint and Token are the store's: its caller hands them back unchanged.
type Claim struct {
	State       ClaimState
	Entry       *Entry // of a Done
	Key         Key    // of a Taken, like the next two
	Fingerprint Key    // of the payload that took the key
	Token       string // tells this owner from any other
}
