package extproc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// history collects what happened when, from many goroutines.
type history struct {
	mu sync.Mutex
	n  map[string]int
}

func (h *history) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = map[string]int{}
	}
	h.n[what]++
}

func TestABurstOfSixtyAdmitsTwelveAndShedsTheRestAtOnce(t *testing.T) {
	bubble(t, seedPolicy, Options{}, func(r *rig) {
		var h history
		var clients sync.WaitGroup
		for range 60 {
			clients.Go(func() {
				c := r.open()
				got := c.ask()
				h.note(fmt.Sprintf("%s at %s", got, r.since()))
				if strings.HasPrefix(got, "reply") {
					return
				}
				time.Sleep(30 * ms) // the upstream works
				c.finish()
			})
		}
		clients.Wait()
		want := map[string]int{
			"continue x-deadline-covers=first_content x-deadline-remaining-ms=2450 x-tier=full at 0s":                                               4,
			"continue x-deadline-covers=first_content x-deadline-remaining-ms=2420 x-tier=full at 30ms":                                             4,
			"continue x-deadline-covers=first_content x-deadline-remaining-ms=2390 x-tier=full at 60ms":                                             4,
			`reply 503 {"error":{"message":"capacity: queue_full","type":"capacity","param":null,"code":"queue_full"},"reason":"queue_full"} at 0s`: 48,
		}
		if diff := cmp.Diff(want, h.n); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if got := r.since(); got != 90*ms {
			t.Errorf("all done at %s, want 90ms", got)
		}
		if diff := cmp.Diff(map[string]int{"ok": 12, "shed": 48}, r.obs.outcomes()); diff != "" {
			t.Errorf("outcomes -want +got\n%s", diff)
		}
		slices.Sort(r.obs.waits)
		waits := slices.Repeat([]string{"full/default 0s"}, 4)
		waits = append(waits, slices.Repeat([]string{"full/default 30ms"}, 4)...)
		waits = append(waits, slices.Repeat([]string{"full/default 60ms"}, 4)...)
		if diff := cmp.Diff(waits, r.obs.waits); diff != "" {
			t.Errorf("waits -want +got\n%s", diff)
		}
		if s := r.srv.Dump(false).Tiers[0]; s.UsedMax != 4 || s.WaitingMax != 8 {
			t.Errorf("maxima: %d in flight, %d waiting, want 4 and 8", s.UsedMax, s.WaitingMax)
		}
	})
}

// deadlinesOf runs 200 streams with budgets of one to eight seconds and counts what ended each, and when.
func deadlinesOf(r *rig, upstream time.Duration) map[string]int {
	var h history
	var clients sync.WaitGroup
	for i := range 200 {
		clients.Go(func() {
			c, budget := r.open(), 1+i%8
			got := c.ask("x-budget-ms", strconv.Itoa(budget*1000))
			if strings.HasPrefix(got, "continue") {
				answered := time.AfterFunc(upstream, func() { c.send(answer(200, "via_upstream")) })
				defer answered.Stop()
				got, _, _ = strings.Cut(c.next(), " x-")
			}
			h.note(fmt.Sprintf("%ds: %s at %s", budget, got, r.since()))
			if got == "answer" {
				c.close()
			}
		})
	}
	clients.Wait()
	return h.n
}

func TestTwoHundredWaitingStreamsAreRefusedEachAtItsOwnTime(t *testing.T) {
	const src = `
version: 1
tiers:
  full: {model: {concurrency: 1, queue: 500}}
routes:
- name: chat
  ladder: [full]
  stream: false
`
	bubble(t, src, Options{}, func(r *rig) {
		r.open().ask("x-budget-ms", "10000")
		want := map[string]int{}
		for budget := 1; budget <= 8; budget++ {
			at := time.Duration(budget)*time.Second - 50*ms
			want[fmt.Sprintf(`%ds: reply 503 {"error":{"message":"capacity: deadline_expired","type":"capacity","param":null,"code":"deadline_expired"},"reason":"deadline_expired"} at %s`, budget, at)] = 25
		}
		if diff := cmp.Diff(want, deadlinesOf(r, 0)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

func TestTwoHundredRunningStreamsAreAnsweredOrEndedEachAtItsOwnTime(t *testing.T) {
	const src = `
version: 1
tiers:
  full: {model: {concurrency: 200, queue: 0}}
routes:
- name: chat
  ladder: [full]
  stream: false
`
	bubble(t, src, Options{}, func(r *rig) {
		want := map[string]int{}
		for budget := 1; budget <= 8; budget++ {
			what := fmt.Sprintf("%ds: answer at 5s", budget)
			if budget <= 5 {
				at := time.Duration(budget)*time.Second - 50*ms
				what = fmt.Sprintf(`%ds: reply 504 {"error":{"message":"deadline: deadline","type":"deadline","param":null,"code":"deadline"},"reason":"deadline"} at %s`, budget, at)
			}
			want[what] = 25
		}
		if diff := cmp.Diff(want, deadlinesOf(r, 5*time.Second)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{"ok": 75, "deadline": 125}, r.obs.outcomes()); diff != "" {
			t.Errorf("outcomes -want +got\n%s", diff)
		}
	})
}
