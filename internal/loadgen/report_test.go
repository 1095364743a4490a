package loadgen

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	var twelve []time.Duration
	for i := range 12 {
		twelve = append(twelve, time.Duration(i+1)*time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 6, 0.9: 11, 0.95: 12, 1: 12} {
		if got := quantile(twelve, q); got != Millis(want*time.Millisecond) {
			t.Errorf("quantile %g of 1..12 is %s, want %d ms", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %s", got)
	}
}

func TestPeakAgreesWithCountingEveryWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		at := make([]time.Duration, rng.IntN(40))
		for i := range at {
			at[i] = time.Duration(rng.IntN(300)) * time.Millisecond
		}
		want := 0
		for _, from := range at {
			n := 0
			for _, t := range at {
				if t >= from && t < from+peakWindow {
					n++
				}
			}
			want = max(want, n)
		}
		if got := peak(slices.Clone(at)); got != want {
			t.Fatalf("peak of %v is %d, want %d", at, got, want)
		}
	}
}

func TestMillisRoundUpInTextAndKeepTheirFractionInJSON(t *testing.T) {
	m := Millis(200*time.Millisecond + 300*time.Microsecond)
	text, err := json.Marshal(m)
	if err != nil || string(text) != "200.300" || m.String() != "201ms" {
		t.Errorf("got %s and %s, %v", text, m, err)
	}
}

func TestChecksPrintOneLinePerExpectation(t *testing.T) {
	ms := func(n int) Millis { return Millis(time.Duration(n) * time.Millisecond) }
	good := Report{Admitted: 12, Shed: 48, P95: ms(88), Max: ms(112), InflightMax: new(4), QueuedMax: new(8)}
	bad := Report{Admitted: 14, Shed: 45, Other: 1, P95: ms(231), Max: ms(2600)}
	expect := Expect{Counts: map[string]int{"admitted": 12, "shed": 48}, P95: 200 * time.Millisecond, Max: 2500 * time.Millisecond}
	named := Expect{Counts: map[string]int{"other": 1, "inflight_max": 4, "queued_max": 8}}
	cases := []struct {
		name   string
		report Report
		expect Expect
		want   []string
	}{
		{"all hold", good, expect, []string{"ok  48 shed as designed", "ok  p95 88ms under 200ms ceiling", "ok  max 112ms under 2500ms budget"}},
		{"none holds", bad, expect, []string{"FAIL admitted 14, expected 12", "FAIL shed 45, expected 48", "FAIL other 1, expected 0",
			"FAIL p95 231ms over 200ms ceiling", "FAIL max 2600ms over 2500ms budget"}},
		{"nothing expected", bad, Expect{}, nil},
		{"named counts", good, named, []string{"FAIL other 0, expected 1", "ok  inflight_max 4 as designed", "ok  queued_max 8 as designed"}},
		{"unknown counts", bad, named, []string{"ok  other 1 as designed",
			"FAIL inflight_max unknown, expected 4: give the address that knows it", "FAIL queued_max unknown, expected 8: give the address that knows it"}},
	}
	for _, c := range cases {
		var got []string
		for _, check := range c.report.Checks(c.expect) {
			got = append(got, check.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestParseCountsSaysWhatIsWrong(t *testing.T) {
	for _, text := range []string{"admitted", "admitted=", "admitted=-1", "admitted=1.5", "p95=3", "shed=1,shed=1", ",", "admitted=1,"} {
		if got, err := ParseCounts(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	got, err := ParseCounts("shed=48,admitted=12")
	if diff := cmp.Diff(map[string]int{"admitted": 12, "shed": 48}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func FuzzParseCountsReadsWhatItPrints(f *testing.F) {
	for _, text := range []string{"", "admitted=12,shed=48", "queued_max=08", "other=0,other=0", "started=99999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := ParseCounts(text)
		if err != nil {
			return
		}
		again, err := ParseCounts(FormatCounts(counts))
		if diff := cmp.Diff(counts, again); diff != "" || err != nil {
			t.Errorf("%q: %v (-first +again):\n%s", text, err, diff)
		}
	})
}

func TestPlansThatContradictThemselvesAreRefused(t *testing.T) {
	for _, p := range []Plan{
		{Retries: -1}, {Retries: MaxRetries + 1, Backoff: BackoffFixed}, {Retries: 1}, {Retries: 1, Backoff: BackoffNone},
		{Retries: 1, Backoff: "exponential"}, {Backoff: BackoffFixed}, {Retries: 1, Backoff: BackoffFixed, Delay: -1},
		{Retries: 1, Backoff: BackoffFixed, Delay: time.Hour},
	} {
		if p.Validate() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
	for _, p := range []Plan{{}, {Backoff: BackoffNone}, {Backoff: BackoffFixed, Retries: 3}, {Backoff: BackoffFullJitter, Retries: MaxRetries, Delay: time.Minute}} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestFullJitterFillsItsWindowAndFixedDelayDoesNotMove(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	jitter := Plan{Backoff: BackoffFullJitter, Delay: 100 * time.Millisecond}
	for n, window := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
		window *= time.Millisecond
		low, high := window, time.Duration(0)
		for range 1000 {
			d := jitter.delay(n, rng)
			low, high = min(low, d), max(high, d)
		}
		if low < 0 || low > window/50 || high >= window || high < window-window/50 {
			t.Errorf("retry %d: from %s to %s, want the whole of 0 to %s", n, low, high, window)
		}
	}
	if d := (Plan{Backoff: BackoffFixed, Delay: time.Second}).delay(5, rng); d != time.Second {
		t.Errorf("fixed delay is %s", d)
	}
}
