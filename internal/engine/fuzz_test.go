package engine

import (
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// FuzzHeaderValues sends any values in every header a caller may state its wishes in. Whatever they are, the request
// is decided at once, its time stays under the policy's cap, and only values of no use are reported.
func FuzzHeaderValues(f *testing.F) {
	for _, v := range []string{"2500", "1", "-5", "0", "1e3", " 500", "900,300", "99999999999999999999", "high", "never", "small", "10S", "", "first_content", "\x00"} {
		f.Add(v, v, v, v, v, v, v)
	}
	s := compile(f, twoTiers)
	f.Fuzz(func(t *testing.T, budget, remaining, covers, grpc, priority, degrade, queue string) {
		r := Request{Method: "POST", Path: "/v1/chat"}
		given := map[string]string{"x-budget-ms": budget, headerRemaining: remaining, headerCovers: covers, headerGRPCTimeout: grpc,
			"x-priority": priority, headerDegrade: degrade, headerMaxQueue: queue}
		for _, name := range []string{"x-budget-ms", headerRemaining, headerCovers, headerGRPCTimeout, "x-priority", headerDegrade, headerMaxQueue} {
			r.Headers = append(r.Headers, outcome.Header{Name: name, Value: given[name]})
		}
		e := New(epoch, s, Options{})
		v, _ := e.Offer(epoch, r, nil)
		if v.Kind == Parked || v.Kind == Looking {
			t.Fatalf("parked with every slot free: %+v", v)
		}
		if v.Kind != Admitted && v.Kind != Shed {
			t.Fatalf("kind %d", v.Kind)
		}
		if v.Kind == Shed && (v.Shed != outcome.ShedDeadlineExpired || !v.Deadline.Expired()) {
			t.Fatalf("shed for %s with a budget of %s", v.Shed, v.Deadline.Budget)
		}
		if v.Deadline.Budget > 10*time.Second || (!v.Deadline.Whole.IsZero() && v.Deadline.First.After(v.Deadline.Whole)) {
			t.Fatalf("deadline %+v is above the cap or out of order", v.Deadline)
		}
		if v.Class != ClassDefault && v.Class != "high" {
			t.Fatalf("class %q came from the caller", v.Class)
		}
		for _, name := range v.Ignored {
			if _, ok := given[name]; !ok {
				t.Fatalf("ignored header %q was not sent", name)
			}
		}
	})
}
