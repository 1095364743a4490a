package replay

import (
	"fmt"
	"io"
	"slices"
	"sync"
)

// LandingKind is what became of a follower's wait. The zero value is nothing yet.
type LandingKind uint8

// The kinds.
const (
	NoLanding LandingKind = iota
	Landed                // the flight's leader has ended: Value is what it left
	Promoted              // the leader's caller went away: the receiver is the leader now, and calls Land or Abort
	Dissolved             // so did the next leader's: the receiver runs alone
	numLandingKinds
)

var landingKindNames = [numLandingKinds]string{"none", "landed", "promoted", "dissolved"}

// String names the kind in dumps and tests.
func (k LandingKind) String() string {
	if k < numLandingKinds {
		return landingKindNames[k]
	}
	return "invalid"
}

// Landing is what a follower is told, once.
type Landing[T any] struct {
	Kind  LandingKind
	Value T // of a Landed
	// Seat is the receiver's own: another goroutine may deliver before Join has returned it.
	Seat *Seat[T]
}

// Flights join identical requests: the first is the leader and runs, the others follow and get what it lands with. Make
// one with NewFlights.
type Flights[T any] struct {
	mu     sync.Mutex // guards the fields below and those of all flights and seats
	flying map[Key]*flight[T]
}

type flight[T any] struct {
	key       Key
	leader    *Seat[T]
	followers []*Seat[T] // in the order they joined
	promoted  bool       // a follower has become leader once
}

// Seat is a request's place in a flight.
type Seat[T any] struct {
	flights *Flights[T]
	deliver func(Landing[T])
	flight  *flight[T] // nil: the seat has been left, or a landing is on its way or has been delivered
	led     bool       // when it was taken
}

// NewFlights makes flights without any request in them.
func NewFlights[T any]() *Flights[T] { return &Flights[T]{flying: make(map[Key]*flight[T])} }

// Join takes a seat in the flight of k. A leader's deliver is never called; a leader calls Land or Abort exactly once. A
// follower's is called at most once: never by Join itself, but perhaps by another goroutine before the caller has seen
// Join return, and with no lock held. Not if Leave has said true.
func (f *Flights[T]) Join(k Key, deliver func(Landing[T])) *Seat[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &Seat[T]{flights: f, deliver: deliver}
	if fl := f.flying[k]; fl != nil {
		s.flight = fl
		fl.followers = append(fl.followers, s)
		return s
	}
	s.led = true
	s.flight = &flight[T]{key: k, leader: s}
	f.flying[k] = s.flight
	return s
}

// Led says whether the seat led its flight when it was taken; a follower promoted since hears of it by its landing.
func (s *Seat[T]) Led() bool { return s.led }

// Leader says whether the seat leads its flight now.
func (s *Seat[T]) Leader() bool {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	return s.leadsLocked()
}

func (s *Seat[T]) leadsLocked() bool { return s.flight != nil && s.flight.leader == s }

// Leave gives up a follower's seat. False: it is no follower's; if a landing is on its way, the receiver still answers for
// it, and aborts when it is a promotion that nobody wants.
func (s *Seat[T]) Leave() bool {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if s.flight == nil || s.leadsLocked() {
		return false
	}
	fl := s.flight
	if i := slices.Index(fl.followers, s); i >= 0 {
		fl.followers = slices.Delete(fl.followers, i, i+1)
	}
	s.flight = nil
	return true
}

// Land ends the leader's flight: every follower gets v, and who joins from now on begins another flight. It does nothing
// if the seat does not lead.
func (s *Seat[T]) Land(v T) {
	s.end(Landing[T]{Kind: Landed, Value: v})
}

// Abort ends the leader's part without a result, for its caller has gone away. The first follower is promoted; if that has
// happened once in this flight, all followers are told to run alone. It does nothing if the seat does not lead.
func (s *Seat[T]) Abort() {
	if next := s.promote(); next != nil {
		next.deliver(Landing[T]{Kind: Promoted, Seat: next})
		return
	}
	s.end(Landing[T]{Kind: Dissolved})
}

// promote hands the flight to its first follower, nil if there is none or one has been promoted before.
func (s *Seat[T]) promote() *Seat[T] {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if !s.leadsLocked() || s.flight.promoted || len(s.flight.followers) == 0 {
		return nil
	}
	fl := s.flight
	next := fl.followers[0]
	fl.followers = slices.Delete(fl.followers, 0, 1)
	fl.leader, fl.promoted, s.flight = next, true, nil
	return next
}

// end takes the flight down and tells its followers.
func (s *Seat[T]) end(l Landing[T]) {
	for _, to := range s.takeDown() {
		l.Seat = to
		to.deliver(l)
	}
}

func (s *Seat[T]) takeDown() []*Seat[T] {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if !s.leadsLocked() {
		return nil
	}
	fl := s.flight
	delete(s.flights.flying, fl.key)
	s.flight = nil
	for _, to := range fl.followers {
		to.flight = nil
	}
	return fl.followers
}

// Len counts the flights and the requests that follow in them.
func (f *Flights[T]) Len() (flights, followers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fl := range f.flying {
		followers += len(fl.followers)
	}
	return len(f.flying), followers
}

// Format prints no key.
func (f *Flights[T]) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "flights(hidden)") }

// Format prints no key.
func (s *Seat[T]) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "seat(hidden)") }
