package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/envoy-brownout/brownout/internal/deadline"
	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
)

// epoch is when every script's request arrives; scripts give times in milliseconds since.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestScripts runs testdata/scripts/*: each line is "at MS event key=value…", the expectation is the effects it causes.
// Rewrite with -rewrite, read the diff, and commit it only if every moved line is understood.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s, now := &Session{}, epoch
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				if line == "new" {
					s, now = &Session{}, epoch
					continue
				}
				at, ev := parseLine(t, line)
				now = epoch.Add(at)
				fmt.Fprintf(&b, "%s\n", line)
				for _, e := range s.Step(nil, now, ev) {
					fmt.Fprintf(&b, "  %s\n", describe(e))
				}
				if wake, ok := s.NextWake(); ok {
					fmt.Fprintf(&b, "  wake at %d\n", wake.Sub(epoch).Milliseconds())
				}
			}
			return b.String()
		})
	})
}

func parseLine(t *testing.T, line string) (time.Duration, Event) {
	t.Helper()
	f := strings.Fields(line)
	ms, err := strconv.Atoi(f[0])
	if err != nil || len(f) < 2 {
		t.Fatalf("line %q: want MS EVENT key=value…", line)
	}
	at := time.Duration(ms) * time.Millisecond
	if f[1] == "body" || f[1] == "last" || f[1] == "upload" {
		data, err := strconv.Unquote(strings.TrimSpace(line[strings.Index(line, f[1])+len(f[1]):]))
		if err != nil {
			t.Fatalf("line %q: want a quoted string: %v", line, err)
		}
		if f[1] == "upload" {
			return at, Body{Phase: RequestBody, Data: []byte(data), End: true}
		}
		return at, Body{Phase: ResponseBody, Data: []byte(data), End: f[1] == "last"}
	}
	kv := map[string]string{}
	for _, s := range f[2:] {
		k, v, _ := strings.Cut(s, "=")
		kv[k] = v
	}
	return at, makeEvent(t, f[1], kv)
}

func makeEvent(t *testing.T, name string, kv map[string]string) Event {
	t.Helper()
	num := func(k string, def int) int {
		if v, ok := kv[k]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatalf("%s=%s is not a number", k, v)
			}
			return n
		}
		return def
	}
	after := func(k string, def int) time.Time { return epoch.Add(time.Duration(num(k, def)) * time.Millisecond) }
	switch name {
	case "request":
		id, ok := dialect.ByPath(kv["path"])
		return RequestHeaders{Dialect: id, Known: ok}
	case "unmatched":
		return Unmatched{}
	case "needbody":
		d := deadline.Deadline{Arrival: epoch, Budget: 2500 * time.Millisecond, Reserve: 50 * time.Millisecond, First: after("first", 2500)}
		return NeedBody{Route: "chat", Deadline: d, ExpiredStatus: 503}
	case "answered":
		return *makeAnswer(kv)
	case "fallen":
		if kv["tier"] == "" {
			return Fallen{}
		}
		return Fallen{makeAnswer(kv)}
	case "parked":
		return Parked{Route: "chat", GiveUp: after("giveup", 2450)}
	case "admitted":
		d := deadline.Deadline{Arrival: epoch, Budget: 2500 * time.Millisecond, Reserve: 50 * time.Millisecond, First: after("first", 2500)}
		if num("whole", 0) > 0 {
			d.Whole = after("whole", 0)
		}
		var why outcome.Degraded
		if kv["reason"] != "" {
			why = outcome.DegradedQueuePressure
		}
		return Admitted{Route: "chat", Tier: kv["tier"], Reason: why, Deadline: d, ExpiredStatus: num("expired", 503), Watch: makeWatch(kv, num),
			Fallback: kv["fallback"] != "", ReplaceEmpty: kv["fallback"] == "empty", Keep: num("keep", 0), Retry: kv["retry"] != "",
			Path: kv["path"], Body: []byte(kv["model"])}
	case "refused":
		r, _ := outcome.ShedByName(kv["reason"])
		return Refused{Route: "chat", Reason: r, Tier: kv["tier"], Status: num("status", 503), RetryAfter: 700 * time.Millisecond}
	case "answer":
		return ResponseHeaders{Status: num("status", 200), ContentType: kv["type"], FromEnvoy: kv["envoy"] != "", Details: kv["envoy"],
			Degraded: kv["degraded"] == "true", RetryAfter: kv["retry-after"], EndOfBody: kv["end"] == "true",
			Encoded: kv["encoded"] == "true"}
	case "trailers":
		return ResponseTrailers{Cut: kv["cut"] == "true"}
	case "cut":
		return UpstreamCut{}
	case "wake":
		return Wake{}
	case "closed":
		return Closed{}
	}
	t.Fatalf("unknown event %q", name)
	return nil
}

// makeAnswer is an answer without the upstream: a template of a tier, or a replay.
func makeAnswer(kv map[string]string) *Answered {
	why, _ := outcome.DegradedByName(kv["reason"])
	if kv["replay"] != "" {
		return &Answered{Route: "chat", Tier: kv["tier"], Reason: why, Outcome: outcome.Replayed, Reply: outcome.ReplayReply(200, kv["tier"], why, 0)}
	}
	return &Answered{Route: "chat", Tier: kv["tier"], Reason: why, Outcome: outcome.DegradedOK, Reply: outcome.TemplateReply(kv["tier"], why, "application/json")}
}

// makeWatch reads how an answer is watched: watch=plain or watch=sealed, and the timers in milliseconds.
func makeWatch(kv map[string]string, num func(string, int) int) *Watch {
	if kv["watch"] == "" {
		return nil
	}
	ms := func(k string, def int) time.Duration { return time.Duration(num(k, def)) * time.Millisecond }
	return &Watch{Idle: ms("idle", 20_000), Linger: ms("linger", 2000), FirstToken: ms("token", 0), Max: ms("max", 0),
		Hold: num("hold", 1) == 1, Sealed: kv["watch"] == "sealed"}
}

func describe(e Effect) string {
	switch e := e.(type) {
	case SendBody:
		return fmt.Sprintf("SendBody end=%t %q", e.End, e.Data)
	case Reply:
		return fmt.Sprintf("Reply %d %s %s", e.Status, headers(e.Headers), e.Body)
	case ContinueAnswer:
		return fmt.Sprintf("ContinueAnswer set %s remove %v", headers(e.Set), e.Remove)
	case Finish:
		s := fmt.Sprintf("Finish outcome=%s source=%s status=%d tier=%q degraded=%q shed=%q of %q", e.Outcome, e.Source, e.Status, e.Tier,
			e.Degraded, e.Shed, e.ShedTier)
		if e.Terminal != outcome.DegradedNone {
			s += fmt.Sprintf(" terminal=%s in %s", e.Terminal, e.Dialect)
		}
		if e.Cut {
			s += fmt.Sprintf(" cut sealed=%t", e.CutSealed)
		}
		if e.AnsweredBy != "" {
			s += " answered by " + e.AnsweredBy
		}
		if e.Failed != outcome.DegradedNone {
			s += " failed " + e.Failed.String()
		}
		if e.Whole {
			s += fmt.Sprintf(" kept %q", e.Kept)
		}
		return s
	case OfferBody:
		return fmt.Sprintf("OfferBody %q", e.Data)
	case Fallback:
		return "Fallback " + e.Why.String()
	case ExtendTimeout:
		return fmt.Sprintf("ExtendTimeout %s", e.For)
	case Continue:
		s := fmt.Sprintf("Continue tier=%s remaining=%dms whole=%t", e.Tier, e.RemainingMillis, e.CoversWhole)
		if e.Watched {
			s += fmt.Sprintf(" watched sealed=%t", e.Sealed)
		}
		if e.Path != "" || len(e.Body) > 0 || e.Retry {
			s += fmt.Sprintf(" path=%q body=%q retry=%t", e.Path, e.Body, e.Retry)
		}
		return s
	case ProtocolError:
		return "ProtocolError " + e.What
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", e), "session.")
}

func headers(hs []outcome.Header) string {
	s := make([]string, len(hs))
	for i, h := range hs {
		s[i] = h.Name + ":" + h.Value
	}
	return "[" + strings.Join(s, " ") + "]"
}
