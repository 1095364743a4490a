package outcome

import (
	"strings"
	"testing"
	"time"
)

func TestEveryEnumHasADistinctName(t *testing.T) {
	for what, names := range map[string][]string{
		"shed": shedNames[:], "degraded": degradedNames[:], "outcome": outcomeNames[:], "source": sourceNames[:], "sample": sampleNames[:],
	} {
		seen := map[string]bool{}
		for i, n := range names {
			if (n == "" && i > 0) || seen[n] {
				t.Errorf("%s %d: name %q is empty or taken", what, i, n)
			}
			seen[n] = true
		}
	}
	if Shed(200).String() != "invalid" || Outcome(200).Sample() != SampleIgnore || Shed(200).Rung() != DegradedQueuePressure {
		t.Error("values outside the enums must stay harmless")
	}
}

func TestEveryShedReasonHasARung(t *testing.T) {
	for _, s := range Sheds() {
		if s.Rung() == DegradedNone {
			t.Errorf("%s leads to no degraded reason", s)
		}
		if got, ok := ShedByName(s.String()); !ok || got != s {
			t.Errorf("ShedByName(%q) = %v, %t", s, got, ok)
		}
	}
	if _, ok := ShedByName(""); ok {
		t.Error("the empty name is a reason")
	}
}

func TestPrecedenceIsTheDesignsOrder(t *testing.T) {
	order := "client_aborted shed deadline evicted truncated stalled quota throttled overloaded upstream_error bad_request empty refusal capped replayed degraded ok unmatched"
	var got []string
	for _, o := range Outcomes() {
		got = append(got, o.String())
	}
	if strings.Join(got, " ") != order {
		t.Errorf("got %v", got)
	}
	if First(Deadline, OK) != Deadline || First(OK, Deadline) != Deadline || First(Unknown, OK) != OK || First(OK, Unknown) != OK {
		t.Error("First does not follow precedence")
	}
}

func TestByStatus(t *testing.T) {
	for _, c := range []struct {
		status  int
		envoy   bool
		details string
		want    Outcome
	}{
		{200, false, "", OK}, {204, false, "", OK}, {301, false, "", OK}, {429, false, "", Throttled}, {503, false, "", Overloaded},
		{529, false, "", Overloaded}, {500, false, "", UpstreamError}, {502, false, "", UpstreamError}, {504, false, "", UpstreamError},
		{400, false, "", BadRequest}, {404, false, "", BadRequest}, {422, false, "", BadRequest},
		{503, true, "upstream_reset_before_response_started{connection_failure}", UpstreamError}, {503, true, "no_healthy_upstream", UpstreamError},
		{503, true, "overload", Overloaded}, {503, true, "upstream_reset_before_response_started{overflow}", Overloaded},
		{504, true, "response_timeout", UpstreamError}, {413, true, "request_payload_too_large", BadRequest}, {404, true, "route_not_found", BadRequest},
	} {
		if got := ByStatus(c.status, c.envoy, c.details); got != c.want {
			t.Errorf("ByStatus(%d, %t, %q) = %s, want %s", c.status, c.envoy, c.details, got, c.want)
		}
	}
}

// TestRepliesCarryTheHeadersOfTheDesign holds our answers to design §3; their bodies are the dialects' matter.
func TestRepliesCarryTheHeadersOfTheDesign(t *testing.T) {
	for _, s := range Sheds() {
		want := map[string]string{"retry-after-ms": "700", "retry-after": "1", "content-type": "application/json",
			"x-degraded": "false", "x-brownout-source": "shed"}
		if s == ShedDeadlineExpired {
			want["x-should-retry"] = "false"
		}
		checkHeaders(t, ShedReply(s, 503, 700*time.Millisecond), want)
	}
	labels := func(source string, more ...string) map[string]string {
		m := map[string]string{"content-type": "application/json", "x-degraded": "false", "x-brownout-source": source}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	checkHeaders(t, DeadlineReply(), labels("deadline", "x-should-retry", "false"))
	checkHeaders(t, CutReply(), labels("upstream"))
	checkHeaders(t, ErrorReply(Quota), labels("upstream", "x-should-retry", "false"))
	for o, status := range map[Outcome]int{Quota: 429, Throttled: 429, Overloaded: 503, Evicted: 503, BadRequest: 400, UpstreamError: 502} {
		if r := ErrorReply(o); r.Status != status {
			t.Errorf("%s: status %d, want %d", o, r.Status, status)
		}
	}
	if DeadlineReply().Status != 504 || CutReply().Status != 502 {
		t.Errorf("statuses %d and %d", DeadlineReply().Status, CutReply().Status)
	}
}

func checkHeaders(t *testing.T, r Reply, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, h := range r.Headers {
		got[h.Name] = h.Value
	}
	if len(got) != len(want) || len(r.Headers) != len(want) {
		t.Errorf("headers %v, want %v", got, want)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("header %s is %q, want %q", k, got[k], v)
		}
	}
}

func TestRetryAfterStaysBetweenOneAndSixtySeconds(t *testing.T) {
	for _, c := range []struct {
		in       time.Duration
		ms, secs string
	}{
		{0, "1", "1"}, {500 * time.Millisecond, "500", "1"}, {1000 * time.Millisecond, "1000", "1"}, {1001 * time.Millisecond, "1001", "2"},
		{time.Hour, "60000", "60"}, {-time.Second, "1", "1"},
	} {
		r := ShedReply(ShedQueueFull, 503, c.in)
		if r.Headers[0].Value != c.ms || r.Headers[1].Value != c.secs {
			t.Errorf("%s: got %v, want %s ms and %s s", c.in, r.Headers[:2], c.ms, c.secs)
		}
	}
}
