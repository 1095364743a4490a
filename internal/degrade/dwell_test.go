package degrade

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var rule = Rule{WaitOver: 200 * time.Millisecond, Dwell: 2 * time.Second}

func TestTheRungIsEnteredAboveTheThresholdAndLeftBelowHalfOfIt(t *testing.T) {
	var d Dwell
	at := time.Unix(1000, 0)
	for _, step := range []struct {
		after, forecast time.Duration
		pass            bool
	}{
		{0, 200 * time.Millisecond, false},                      // not above
		{0, 201 * time.Millisecond, true},                       // entered
		{time.Second, 0, true},                                  // kept to
		{2*time.Second - time.Nanosecond, 0, true},              // still
		{2 * time.Second, 150 * time.Millisecond, true},         // over, but the wait is not below half
		{3 * time.Second, 100 * time.Millisecond, true},         // half is not below
		{3 * time.Second, 99 * time.Millisecond, false},         // left
		{3 * time.Second, 150 * time.Millisecond, false},        // between the two nothing changes
		{3100 * time.Millisecond, 300 * time.Millisecond, true}, // entered again
		{5 * time.Second, 0, true},                              // for a whole dwell
		{5100 * time.Millisecond, 10 * time.Millisecond, false}, // left again
	} {
		if got := d.Pass(at.Add(step.after), step.forecast, rule); got != step.pass {
			t.Fatalf("after %v with a wait of %v: pass %v, want %v", step.after, step.forecast, got, step.pass)
		}
	}
	if d.Entries() != 2 {
		t.Errorf("%d entries, want 2", d.Entries())
	}
}

func TestWithoutPatienceAnyWaitPassesAndNoneReturns(t *testing.T) {
	var d Dwell
	r := Rule{Dwell: time.Second}
	at := time.Unix(1000, 0)
	if d.Pass(at, 0, r) {
		t.Error("passed a tier whose wait nobody knows")
	}
	if !d.Pass(at, time.Nanosecond, r) {
		t.Error("waited although wait_over is 0")
	}
	if d.Pass(at.Add(time.Second), 0, r) {
		t.Error("did not return when there was no wait left")
	}
}

// TestThereIsAtMostOneEntryPerDwell: whatever the load does.
func TestThereIsAtMostOneEntryPerDwell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Dwell
		now := time.Unix(1000, 0)
		var last time.Time
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(700*time.Millisecond)).Draw(t, "pause")))
			before := d.Entries()
			if rapid.Bool().Draw(t, "full") {
				d.Enter(now, rule)
			} else {
				d.Pass(now, time.Duration(rapid.Int64Range(0, int64(400*time.Millisecond)).Draw(t, "forecast")), rule)
			}
			if d.Entries() == before {
				continue
			}
			if !last.IsZero() && now.Sub(last) < rule.Dwell {
				t.Fatalf("entered %v after the entry before", now.Sub(last))
			}
			last = now
		}
	})
}
