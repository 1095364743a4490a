package stub

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseLatencyReadsBothFormsAndSaysWhatIsWrong(t *testing.T) {
	cases := []struct {
		text, want, wrong string
	}{
		{text: "30ms", want: "30ms"},
		{text: "30", want: "30ms"},
		{text: "0", want: "0s"},
		{text: "lognormal:100ms,0.7", want: "lognormal:100ms,0.7"},
		{text: "lognormal:1s,0", want: "1s"},
		{text: "", wrong: "not a duration"},
		{text: "-1ms", wrong: "not a duration"},
		{text: "2h", wrong: "not a duration"},
		{text: "lognormal:100ms", wrong: "coefficient of variation"},
		{text: "lognormal:100ms,-1", wrong: "coefficient of variation"},
		{text: "lognormal:100ms,NaN", wrong: "coefficient of variation"},
		{text: "lognormal:100ms,Inf", wrong: "coefficient of variation"},
		{text: "normal:100ms,1", wrong: "not a duration"},
	}
	for _, c := range cases {
		got, err := ParseLatency(c.text)
		if c.wrong == "" && (err != nil || got.String() != c.want) {
			t.Errorf("%q: got %s, %v, want %s", c.text, got, err, c.want)
		}
		if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q: got %v, want an error with %q", c.text, err, c.wrong)
		}
	}
}

func TestLognormalDrawsHaveTheMeanAndVariationAskedFor(t *testing.T) {
	l := Latency{mean: 100 * time.Millisecond, cv: 0.7}
	const n = 200_000
	sum, squares := 0.0, 0.0
	for i := range n {
		x := float64(l.Draw(1, strconv.Itoa(i))) / float64(l.mean)
		sum, squares = sum+x, squares+x*x
	}
	mean := sum / n
	cv := math.Sqrt(squares/n-mean*mean) / mean
	if math.Abs(mean-1) > 0.01 || math.Abs(cv-0.7) > 0.02 {
		t.Errorf("mean %.4f of the one asked for, variation %.4f, want 1 and 0.7", mean, cv)
	}
}

func TestADrawDependsOnSeedAndIDOnly(t *testing.T) {
	l := Latency{mean: time.Second, cv: 1}
	first := l.Draw(7, "a")
	if again := l.Draw(7, "a"); again != first {
		t.Errorf("the same request cost %s, then %s", first, again)
	}
	if first == l.Draw(8, "a") || first == l.Draw(7, "b") {
		t.Error("seed or id make no difference")
	}
}

func FuzzParseLatencyReadsWhatItPrints(f *testing.F) {
	for _, text := range []string{"30ms", "30", "lognormal:100ms,0.7", "lognormal:1h,100", "lognormal:0,-0", "1ns", "lognormal:1ms,1e-300"} {
		f.Add(text, uint64(1), "id")
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64, id string) {
		l, err := ParseLatency(text)
		if err != nil {
			return
		}
		again, err := ParseLatency(l.String())
		if err != nil || again != l {
			t.Errorf("%q became %q, which reads as %+v, %v", text, l, again, err)
		}
		if d := l.Draw(seed, id); d < 0 || d > maxLatency || l.Fixed() && d != l.Mean() {
			t.Errorf("%s drew %s", l, d)
		}
	})
}
