package watch

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestBurstEndsOneQuietTimeAfterItsLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(100 * time.Millisecond)
		start := time.Now()
		for range 3 {
			b.note(time.Now())
			time.Sleep(50 * time.Millisecond)
		}
		<-b.timer.C
		if got := time.Since(start); got != 200*time.Millisecond {
			t.Errorf("ended after %s, want 200ms", got)
		}
	})
}

func TestBurstThatDoesNotEndIsCutAfterTenQuietTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(100 * time.Millisecond)
		for range 2 { // and the next one has its full time again
			start, tick := time.Now(), time.NewTicker(50*time.Millisecond)
			b.note(start)
			for fired := false; !fired; {
				select {
				case <-b.timer.C:
					fired = true
				case <-tick.C:
					b.note(time.Now())
				}
			}
			tick.Stop()
			b.end()
			if got := time.Since(start); got != time.Second {
				t.Errorf("cut after %s, want 1s", got)
			}
		}
	})
}

func TestWithoutANotifierNothingIsWatched(t *testing.T) {
	d := newDirs(nil, slog.New(slog.DiscardHandler))
	d.sync(t.TempDir() + "/policy.yaml")
	d.close()
	if len(d.watched) != 0 || d.concerns("/anything") {
		t.Errorf("watched %v", d.watched)
	}
}
