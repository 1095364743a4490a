package deadline

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func seed() Limits { return Limits{Default: 2500 * ms, Max: 10 * time.Second} }

// row is an expected deadline in milliseconds after arrival; whole 0 means a stream may go on.
type row struct {
	name                 string
	add                  func(*Bounds)
	covers               bool
	first, whole, killAt float64
	stream               float64 // EndAt of a stream
}

func TestResolve(t *testing.T) {
	for _, c := range []row{
		{"nothing stated: the default, and streams go on", func(*Bounds) {}, false, 2500, 0, 2450, 0},
		{"nothing stated, strict reading", func(*Bounds) {}, true, 2500, 2500, 2450, 2450},
		{"a stated budget covers the whole answer", func(b *Bounds) { b.AddWhole(1000 * ms) }, false, 1000, 1000, 950, 950},
		{"a small budget keeps 5 percent", func(b *Bounds) { b.AddWhole(200 * ms) }, false, 200, 200, 190, 190},
		{"a stated budget is capped", func(b *Bounds) { b.AddWhole(time.Hour) }, false, 10000, 10000, 9950, 9950},
		{"the smallest of several", func(b *Bounds) { b.AddWhole(900 * ms); b.AddWhole(300 * ms); b.AddWhole(600 * ms) }, false, 300, 300, 285, 285},
		{"above the default is fine when stated", func(b *Bounds) { b.AddWhole(8000 * ms) }, false, 8000, 8000, 7950, 7950},
		{"a bound on first content lets streams go on", func(b *Bounds) { b.AddFirst(800 * ms) }, false, 800, 0, 760, 0},
		{"first content and whole", func(b *Bounds) { b.AddFirst(800 * ms); b.AddWhole(5000 * ms) }, false, 800, 5000, 760, 4960},
		{"an Envoy timeout bounds the whole and keeps the default", func(b *Bounds) { b.AddEnvoy(15000 * ms) }, false, 2500, 14750, 2450, 14700},
		{"a short Envoy timeout shortens the default", func(b *Bounds) { b.AddEnvoy(1000 * ms) }, false, 750, 750, 712.5, 712.5},
		{"a very short Envoy timeout keeps half", func(b *Bounds) { b.AddEnvoy(200 * ms) }, false, 100, 100, 95, 95},
		{"an Envoy timeout bounds a stated budget", func(b *Bounds) { b.AddWhole(5000 * ms); b.AddEnvoy(2000 * ms) }, false, 1750, 1750, 1700, 1700},
		{"Envoy's 0 is no timeout", func(b *Bounds) { b.AddEnvoy(0) }, false, 2500, 0, 2450, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b Bounds
			c.add(&b)
			l := seed()
			l.CoversWhole = c.covers
			d := b.Resolve(epoch, l)
			check(t, "first", d.First, c.first)
			check(t, "whole", d.Whole, c.whole)
			check(t, "killAt", d.KillAt(), c.killAt)
			check(t, "end of a stream", d.EndAt(true), c.stream)
			check(t, "end of another answer", d.EndAt(false), c.killAt)
			if d.Expired() {
				t.Error("expired on arrival")
			}
		})
	}
}

func check(t *testing.T, what string, got time.Time, wantMs float64) {
	t.Helper()
	if wantMs == 0 {
		if !got.IsZero() {
			t.Errorf("%s is %s, want none", what, got.Sub(epoch))
		}
		return
	}
	if want := time.Duration(wantMs * float64(ms)); got.Sub(epoch) != want {
		t.Errorf("%s is %s, want %s", what, got.Sub(epoch), want)
	}
}

func TestZeroOrLessIsExpired(t *testing.T) {
	for _, d := range []time.Duration{0, -5 * ms, -maxDuration} {
		for name, add := range map[string]func(*Bounds, time.Duration){"whole": (*Bounds).AddWhole, "first": (*Bounds).AddFirst} {
			var b Bounds
			add(&b, d)
			if got := b.Resolve(epoch, seed()); !got.Expired() || got.Reserve != 0 {
				t.Errorf("%s %s: got %+v, want expired", name, d, got)
			}
		}
	}
}

func TestRemainingShrinksAndNeverReachesZero(t *testing.T) {
	d := Bounds{}.Resolve(epoch, seed())
	for _, c := range []struct{ at, want int64 }{{0, 2450}, {610, 1840}, {2449, 1}, {2450, 1}, {9000, 1}} {
		if got := d.RemainingMillis(epoch.Add(time.Duration(c.at) * ms)); got != c.want {
			t.Errorf("at %d ms: %d remain, want %d", c.at, got, c.want)
		}
	}
}

// TestBoundsOnlyShorten adds bounds in any order: none ever moves the deadline later, and order does not matter.
func TestBoundsOnlyShorten(t *testing.T) {
	type bound struct {
		kind int
		d    time.Duration
	}
	apply := func(bs []bound) Deadline {
		var b Bounds
		for _, x := range bs {
			switch x.kind {
			case 0:
				b.AddWhole(x.d)
			case 1:
				b.AddFirst(x.d)
			case 2:
				b.AddEnvoy(x.d)
			}
		}
		return b.Resolve(epoch, seed())
	}
	rapid.Check(t, func(t *rapid.T) {
		bs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) bound {
			return bound{rapid.IntRange(0, 2).Draw(t, "kind"), time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "d"))}
		}), 1, 6).Draw(t, "bounds")
		d := apply(bs)
		if apply(rapid.Permutation(bs).Draw(t, "order")) != d {
			t.Fatal("the order of bounds matters")
		}
		if d.First.After(epoch.Add(seed().Max)) {
			t.Fatalf("first %s is above the cap", d.First.Sub(epoch))
		}
		if !d.Whole.IsZero() && d.First.After(d.Whole) {
			t.Fatal("the first content may come after the end")
		}
		more := apply(append(bs[:len(bs):len(bs)], bound{0, 700 * ms}))
		if more.Whole.IsZero() || more.Whole.After(epoch.Add(700*ms)) || (!d.Whole.IsZero() && more.Whole.After(d.Whole)) {
			t.Fatalf("a further bound moved the end from %s to %s", d.Whole, more.Whole)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var bs Bounds
		d, _ := ParseMillis("1840")
		bs.AddWhole(d)
		_ = bs.Resolve(epoch, seed())
	}
}
