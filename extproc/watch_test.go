package extproc

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// One runs, one waits; answers are watched with the defaults.
var watchedPolicy = strings.Replace(narrowPolicy, "  stream: false\n", "", 1)

const frame = "data: {\"delta\":\"x\"}\n\n"

// piece is a piece of an answer's body as Envoy sends it.
func piece(data string, end bool) *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseBody{
		ResponseBody: &pb.HttpBody{Body: []byte(data), EndOfStream: end}}}
}

// nextBody is the next piece of a body the processor sends.
func (c *call) nextBody() (data string, end bool) {
	c.r.t.Helper()
	m, err := c.s.Recv()
	if err != nil {
		c.r.t.Errorf("no piece of a body: %v", err)
		return "", true
	}
	sr := m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
	if sr == nil {
		c.r.t.Errorf("got %s, want a streamed response: Envoy takes nothing else in a duplex body", show(m))
	}
	return string(sr.GetBody()), sr.GetEndOfStream()
}

// stream admits a request and starts its answer.
func (c *call) stream(md ...string) {
	c.send(request("POST", "/v1/chat/completions"))
	m, err := c.s.Recv()
	if err != nil || m.GetModeOverride().GetResponseBodyMode().String() != "FULL_DUPLEX_STREAMED" {
		c.r.t.Fatalf("got %v, %v: want an admission that asks for the body", m, err)
	}
	c.send(answer(200, "via_upstream", "content-type", "text/event-stream"))
}

// TestATenMinuteStreamKeepsItsSlot: bytes flow, so nothing takes the slot away.
func TestATenMinuteStreamKeepsItsSlot(t *testing.T) {
	bubble(t, watchedPolicy, Options{}, func(r *rig) {
		c := r.openFor(time.Hour)
		c.stream()
		for i := range 60 {
			time.Sleep(10 * time.Second * time.Duration(min(i, 1)))
			c.send(piece(frame, false))
			if i == 0 {
				if got := c.next(); !strings.HasPrefix(got, "answer") {
					t.Errorf("headers: %s", got)
				}
			}
			if data, end := c.nextBody(); data != frame || end {
				t.Fatalf("minute %d: %q, end %t", i/6, data, end)
			}
			if r.used() != 1 {
				t.Fatalf("after %s the slot is gone", r.since())
			}
		}
		c.send(piece("data: [DONE]\n\n", true))
		if data, end := c.nextBody(); data != "data: [DONE]\n\n" || !end {
			t.Errorf("the end: %q, %t", data, end)
		}
		if r.since() < 590*time.Second {
			t.Errorf("only %s went by", r.since())
		}
	})
}

// TestCaseC61: Envoy may deliver the last piece twice; one ending, and the second is not answered.
func TestCaseC61TheLastPieceTwice(t *testing.T) {
	bubble(t, watchedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.stream()
		c.send(piece(frame, false))
		c.next()
		c.nextBody()
		c.send(piece("", true))
		data, end := c.nextBody()
		if !end || strings.Count(data, "event: done") != 1 {
			t.Errorf("the ending: %q, %t", data, end)
		}
		c.send(piece("", true))
		c.close()
		if got := r.obs.outcomes()["truncated"]; got != 1 {
			t.Errorf("outcomes %v", r.obs.outcomes())
		}
	})
}

// TestASilentStreamIsEndedByTheIdleTimer, and what is held back is accounted for.
func TestASilentStreamIsEndedByTheIdleTimer(t *testing.T) {
	bubble(t, watchedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.stream()
		c.send(piece(frame+"data: {\"hal", false))
		c.next()
		c.nextBody()
		if got := r.srv.HeldBytes(); got != int64(len("data: {\"hal")) {
			t.Errorf("%d bytes held", got)
		}
		data, end := c.nextBody()
		want := "event: done\ndata: {\"tier\":\"full\",\"degraded\":true,\"reason\":\"stalled\",\"complete\":false}\n\n"
		if data != want || !end || r.since() != 20*time.Second {
			t.Errorf("at %s: %q, %t", r.since(), data, end)
		}
		if r.srv.HeldBytes() != 0 || r.used() != 0 {
			t.Errorf("%d bytes and %d slots are still held", r.srv.HeldBytes(), r.used())
		}
		c.close()
	})
}

// TestTheSealIsUsedWhereEnvoyAnnouncesIt: its route, an id of this process, and the end of the upstream's work.
func TestTheSealIsUsedWhereEnvoyAnnouncesIt(t *testing.T) {
	var cancelled []string
	bubble(t, watchedPolicy, Options{CancelUpstream: func(id string) { cancelled = append(cancelled, id) }}, func(r *rig) {
		c := r.open(metaSeal, "token")
		c.send(chat("x-budget-ms", "1000"))
		m, err := c.s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got := mutation(m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders())
		if !strings.Contains(got, "x-brownout-seal=token") || !strings.Contains(got, "x-brownout-id=1") {
			t.Errorf("headers %s", got)
		}
		if !r.srv.Sealed("1") || r.srv.Sealed("2") {
			t.Error("the id is not known, or another is")
		}
		c.send(answer(200, "via_upstream", "content-type", "text/event-stream"))
		c.send(piece(frame, false))
		c.next()
		c.nextBody()
		if data, end := c.nextBody(); !strings.Contains(data, `"reason":"deadline"`) || !end {
			t.Errorf("at the deadline: %q, %t", data, end)
		}
		c.close()
		if fmt.Sprint(cancelled) != "[1]" || r.srv.Sealed("1") {
			t.Errorf("cancelled %v, still live %t", cancelled, r.srv.Sealed("1"))
		}
	})
}

// TestALargePieceIsSentInParts: Envoy takes 64 KiB at a time.
func TestALargePieceIsSentInParts(t *testing.T) {
	bubble(t, watchedPolicy, Options{}, func(r *rig) {
		c := r.open()
		c.stream()
		big := "data: " + strings.Repeat("x", 200<<10) + "\n\n"
		c.send(piece(big, false))
		c.next()
		got := ""
		for len(got) < len(big) {
			data, _ := c.nextBody()
			if len(data) > maxChunk {
				t.Fatalf("a part of %d bytes", len(data))
			}
			got += data
		}
		if got != big {
			t.Error("the parts are not the whole")
		}
		c.abort()
	})
}

// TestAWatchedAnswerWhoseHandlerFailsIsBrokenOffAndNeverEnded: what the session knew of it is lost, so it could only be
// passed with a hole, or ended as if it were whole. The seal may not end it any more either.
func TestAWatchedAnswerWhoseHandlerFailsIsBrokenOffAndNeverEnded(t *testing.T) {
	for name, before := range map[string]func(c *call){
		"while headers are held": func(*call) {},
		"in the middle of an event": func(c *call) {
			c.send(piece(frame+"data: {\"hal", false))
			c.next()
			c.nextBody()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, watchedPolicy, Options{Logger: slog.New(fragile{"unexpected message"})}, func(r *rig) {
				c := r.openFor(time.Minute, metaSeal, "on")
				c.stream()
				before(c)
				if !r.srv.Sealed("1") {
					t.Error("the request is not sealed")
				}
				c.send(answer(200, "via_upstream")) // out of place: complaining about it fails
				m, err := c.s.Recv()
				if err == nil && m.GetResponseHeaders() != nil { // the message out of place is answered first
					m, err = c.s.Recv()
				}
				if err != nil || m.GetImmediateResponse().GetDetails() != "brownout_reset" {
					t.Errorf("got %v, %v, want that the answer is broken off", m, err)
				}
				if r.srv.Sealed("1") {
					t.Error("the seal may still end the answer")
				}
				c.close()
			})
		})
	}
}
