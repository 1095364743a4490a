package stub

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryModeAnswersAsDocumentedOverBothProtocols(t *testing.T) {
	const chat, stream = `{"messages":[]}`, `{"stream": true}`
	cases := []struct {
		mode              Mode
		request           string
		status            int
		contentType, body string
		cut               bool
	}{
		{ModeOK, chat, 200, "", "{}", false},
		{ModeThrottle, chat, 429, "application/json", `{"error":"rate_limit_exceeded"}`, false},
		{ModeTruncate, chat, 200, "text/event-stream", "data: {\"delta\":\"partial \"}\n\n", true},
		{ModeStream, chat, 200, "text/event-stream", streamText(8), false},
		{ModeError, chat, 500, "application/json", bodyError, false},
		{ModeEmpty, chat, 200, "application/json", bodyEmpty, false},
		{ModeEmpty, stream, 200, "text/event-stream", emptyText(), false},
		{ModeRefuse, chat, 200, "application/json", bodyRefuse, false},
		{ModeRefuse, stream, 200, "text/event-stream", refuseText(), false},
		{ModeEvict, chat, 503, "application/json", bodyEvict, false},
		{ModeEvict, stream, 200, "text/event-stream", evictText(), false},
	}
	s := start(t, Config{})
	for _, h2 := range []bool{false, true} {
		client := clientFor(t, h2)
		for _, c := range cases {
			t.Run(string(c.mode)+" "+c.request+" h2="+strconv.FormatBool(h2), func(t *testing.T) {
				got := send(t, client, s.url+"/v1/chat/completions", c.request, HeaderMode, string(c.mode))
				if got.status != c.status || got.header.Get("content-type") != c.contentType || got.body != c.body {
					t.Errorf("got %d %q %q, want %d %q %q", got.status, got.header.Get("content-type"), got.body, c.status, c.contentType, c.body)
				}
				if (got.err != nil) != c.cut {
					t.Errorf("reading the body ended with %v, want a cut: %t", got.err, c.cut)
				}
				if c.cut && !h2 && !errors.Is(got.err, io.ErrUnexpectedEOF) {
					t.Errorf("got %v, want an end without the last chunk", got.err)
				}
				wantRetry := ""
				if c.mode == ModeThrottle {
					wantRetry = "2"
				}
				if retry := got.header.Get("retry-after"); retry != wantRetry {
					t.Errorf("retry-after is %q, want %q", retry, wantRetry)
				}
			})
		}
	}
	if s := s.Stats(); !accounted(s) || s.Throttled != 2 || s.Started != s.Arrived-2 || s.Inflight != 0 {
		t.Errorf("counters do not add up: %+v", s)
	}
}

func TestHelpShowsTheBodyOfEveryMode(t *testing.T) {
	help := Help()
	for _, body := range []string{bodyOK, bodyThrottle, bodyTruncate, bodyError, bodyEvict, bodyEmpty, bodyRefuse, streamText(1), evictText()} {
		for _, line := range sseLines(body) {
			if !strings.Contains(help, line+"\n") {
				t.Errorf("help lacks %q", line)
			}
		}
	}
	for _, name := range ModeNames() {
		if !strings.Contains(help, "\n  "+name+": ") && !strings.HasPrefix(help, "  "+name+": ") {
			t.Errorf("help lacks mode %s", name)
		}
	}
}

func TestStreamedAnswersAreEventsOfTheDialect(t *testing.T) {
	for name, text := range map[string]string{"stream": streamText(3), "empty": emptyText(), "refuse": refuseText(), "evict": evictText()} {
		events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
		if last := events[len(events)-1]; last != "data: [DONE]" {
			t.Errorf("%s ends with %q", name, last)
		}
		finishes := 0
		for _, e := range events[:len(events)-1] {
			var c chunk
			if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &c); err != nil || len(c.Choices) != 1 {
				t.Fatalf("%s: %q: %v", name, e, err)
			}
			if c.Choices[0].FinishReason != nil {
				finishes++
			}
		}
		if finishes != 1 {
			t.Errorf("%s has %d finish reasons, want 1", name, finishes)
		}
	}
}

// play serves one request without a network and reports how long it took and whether the handler broke it off.
func play(ctx context.Context, s *Stub, header ...string) (rec *httptest.ResponseRecorder, took time.Duration, aborted bool) {
	rec = httptest.NewRecorder()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/x", strings.NewReader("{}"))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	defer func() {
		took = time.Since(began)
		if p := recover(); p != nil {
			if aborted = p == http.ErrAbortHandler; !aborted {
				panic(p)
			}
		}
	}()
	s.ServeHTTP(rec, req)
	return rec, took, false
}

func TestServiceTimesAreExact(t *testing.T) {
	cases := []struct {
		name   string
		cfg    Config
		header []string
		want   time.Duration
	}{
		{"nothing configured", Config{}, nil, 0},
		{"configured", Config{Latency: Latency{mean: 30 * time.Millisecond}}, nil, 30 * time.Millisecond},
		{"asked for", Config{Latency: Latency{mean: time.Hour}}, []string{HeaderLatency, "70"}, 70 * time.Millisecond},
		{"slow is 8 s whatever is asked for", Config{Mode: ModeSlow}, []string{HeaderLatency, "30ms"}, 8 * time.Second},
		{"throttle does not work", Config{Latency: Latency{mean: time.Hour}}, []string{HeaderMode, "throttle"}, 0},
		{"truncate holds for 50 ms", Config{Mode: ModeTruncate}, nil, 50 * time.Millisecond},
		{"a stream takes its gaps", Config{Mode: ModeStream, Latency: Latency{mean: time.Second}}, []string{HeaderChunks, "5", HeaderGap, "10ms"}, 1040 * time.Millisecond},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, took, _ := play(t.Context(), newStub(t, c.cfg), c.header...)
				if took != c.want {
					t.Errorf("took %s, want %s", took, c.want)
				}
			})
		})
	}
}

func TestCallsBeyondTheSlotsWaitInOrderWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, Config{Slots: 2, Latency: Latency{mean: 10 * time.Millisecond}})
		took := make([]time.Duration, 7)
		var wg sync.WaitGroup
		for i := range took {
			wg.Go(func() { _, took[i], _ = play(t.Context(), s) })
			synctest.Wait() // arrivals in order
		}
		if got := s.Stats(); got.Inflight != 7 || got.Queued != 5 || got.Started != 2 {
			t.Errorf("with 2 slots and 7 calls: %+v", got)
		}
		wg.Wait()
		const ms = time.Millisecond
		if diff := cmp.Diff([]time.Duration{10 * ms, 10 * ms, 20 * ms, 20 * ms, 30 * ms, 30 * ms, 40 * ms}, took); diff != "" {
			t.Errorf("not first come, first served (-want +got):\n%s", diff)
		}
		want := Stats{InflightMax: 7, QueuedMax: 5, Arrived: 7, Started: 7, Finished: 7, StartedByWave: map[int]int{}}
		if diff := cmp.Diff(want, s.Stats()); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
	})
}

func TestCallsOfClientsThatLeave(t *testing.T) {
	cases := []struct {
		name string
		keep bool
		want Stats // of one running and one queued call that both leave, then one that stays
		took time.Duration
	}{
		{"are cancelled and give the slot back", false,
			Stats{InflightMax: 2, QueuedMax: 1, Arrived: 3, Started: 2, Finished: 1, Cancelled: 2}, 100 * time.Millisecond},
		{"run on and are wasted where the GPU ignores it", true,
			Stats{InflightMax: 3, QueuedMax: 2, Arrived: 3, Started: 3, Finished: 1, Wasted: 2}, 290 * time.Millisecond},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, Config{Slots: 1, Latency: Latency{mean: 100 * time.Millisecond}, KeepRunning: c.keep})
				ctx, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer leave()
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { play(ctx, s) })
				}
				<-ctx.Done()
				synctest.Wait()
				_, took, _ := play(t.Context(), s)
				wg.Wait()
				if took != c.took {
					t.Errorf("the call that stayed took %s, want %s", took, c.took)
				}
				c.want.StartedByWave = map[int]int{}
				if diff := cmp.Diff(c.want, s.Stats()); diff != "" {
					t.Errorf("counters (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAStreamWhoseClientLeavesIsWastedOnlyWithKeepRunning(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t, Config{Mode: ModeStream, Chunks: 10, Gap: 10 * time.Millisecond, KeepRunning: keep})
			ctx, leave := context.WithTimeout(t.Context(), 35*time.Millisecond)
			defer leave()
			_, took, aborted := play(ctx, s)
			got := s.Stats()
			if keep && (took != 90*time.Millisecond || got.Wasted != 1 || aborted) {
				t.Errorf("kept running: took %s, %+v", took, got)
			}
			if !keep && (took != 35*time.Millisecond || got.Cancelled != 1 || !aborted) {
				t.Errorf("not kept running: took %s, aborted %t, %+v", took, aborted, got)
			}
		})
	}
}

func TestResetForgetsCallsThatArrivedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, Config{Slots: 1, Latency: Latency{mean: time.Second}})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { play(t.Context(), s) })
		}
		synctest.Wait()
		s.Reset()
		if got := s.Stats(); got.Inflight != 3 || got.InflightMax != 3 || got.QueuedMax != 2 || got.Arrived != 0 || got.Started != 0 {
			t.Errorf("right after the reset: %+v", got)
		}
		wg.Wait()
		if got := s.Stats(); got.Inflight != 0 || got.Queued != 0 || got.Finished != 0 || got.Started != 0 {
			t.Errorf("calls from before the reset were counted: %+v", got)
		}
		play(t.Context(), s, HeaderWave, "2")
		if got := s.Stats(); got.Finished != 1 || got.StartedByWave[2] != 1 {
			t.Errorf("after one more call: %+v", got)
		}
	})
}

func TestAClientThatHangsUpIsNoticedOverBothProtocols(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		s := start(t, Config{Mode: ModeSlow})
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		client := clientFor(t, h2)
		go func() {
			resp, err := client.Do(req)
			if err == nil {
				err = resp.Body.Close()
			}
			ended <- err
		}()
		eventually(t, "the call starts", func() bool { return s.Stats().Started == 1 })
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("h2=%t: the client saw %v", h2, err)
		}
		eventually(t, "the call is cancelled", func() bool { return s.Stats().Cancelled == 1 && s.Stats().Inflight == 0 })
	}
}

func TestBodiesAreReadWholeAndEchoed(t *testing.T) {
	s := start(t, Config{})
	for _, h2 := range []bool{false, true} {
		client := clientFor(t, h2)
		for _, size := range []int{0, 1, 1 << 20, 1<<20 + 1, 5 << 20} {
			got := send(t, client, s.url+"/v1/x?q=1", strings.Repeat("b", size), HeaderEcho, "1", "x-tier", "full")
			var e echo
			if err := json.Unmarshal([]byte(got.body), &e); err != nil {
				t.Fatal(err)
			}
			if int(e.BodyBytes) != size || got.header.Get(HeaderBodyBytes) != strconv.Itoa(size) || e.BodySHA256 != got.header.Get(HeaderBodySHA256) {
				t.Errorf("%d bytes: echoed %+v, header %q", size, e, got.header.Get(HeaderBodyBytes))
			}
			if diff := cmp.Diff([]string{"full"}, map[string][]string(e.Headers)["x-tier"]); diff != "" || e.Path != "/v1/x?q=1" || e.Method != http.MethodPost {
				t.Errorf("echo is %+v", e)
			}
		}
	}
	got := send(t, clientFor(t, false), s.url, "{}", HeaderEcho, "1", HeaderMode, "throttle")
	if got.status != 429 || got.header.Get("retry-after") != "2" || !strings.Contains(got.body, `"mode":"throttle"`) {
		t.Errorf("an echoing throttle answered %d %q", got.status, got.body)
	}
}

func TestABadRequestHeaderIsNamedWithItsRemedy(t *testing.T) {
	s := start(t, Config{})
	for header, value := range map[string]string{
		HeaderMode: "sleepy", HeaderLatency: "soon", HeaderChunks: "0", HeaderGap: "lognormal:1s,1", HeaderWave: "17",
	} {
		got := send(t, clientFor(t, false), s.url, "", header, value)
		if got.status != 400 || !strings.Contains(got.body, header) || !strings.Contains(got.body, value) {
			t.Errorf("%s: %s answered %d %s", header, value, got.status, got.body)
		}
	}
	if got := s.Stats(); got.Arrived != 0 {
		t.Errorf("a refused request was counted as a model call: %+v", got)
	}
}

func TestNewNamesTheFieldThatIsOutOfRange(t *testing.T) {
	for want, cfg := range map[string]Config{
		"mode": {Mode: "sleepy"}, "slots": {Slots: -1}, "chunks": {Chunks: -1}, "gap": {Gap: -1},
	} {
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error about %s", cfg, err, want)
		}
	}
}

func TestOwnPathsAreNotModelCalls(t *testing.T) {
	s := start(t, Config{Mode: ModeSlow})
	client := clientFor(t, false)
	for path, want := range map[string]int{PathHealth: 200, PathWarm: 204, PathStats: 200, PathReset: 204, PathUpgrade: 426, "/stub/status": 404} {
		if got := send(t, client, s.url+path, ""); got.status != want {
			t.Errorf("%s answered %d, want %d", path, got.status, want)
		}
	}
	if resp, err := client.Get(s.url + PathReset); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET %s: %v %v", PathReset, resp, err)
	} else {
		_ = resp.Body.Close()
	}
	got := send(t, client, s.url+PathStats, "")
	var fields map[string]any
	if err := json.Unmarshal([]byte(got.body), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inflight", "inflight_max", "started", "finished", "cancelled", "wasted"} {
		if fields[name] != 0.0 {
			t.Errorf("stats %s is %v, want 0", name, fields[name])
		}
	}
}

func TestServeEndsPromptlyWithCallsOpenAndLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	s := start(t, Config{Mode: ModeSlow, Slots: 1, KeepRunning: true})
	var wg sync.WaitGroup
	for i := range 4 {
		client := clientFor(t, i%2 == 0)
		wg.Go(func() {
			if resp, err := client.Post(s.url, "", nil); err == nil {
				t.Errorf("a call of a stub that was stopped answered %d", resp.StatusCode)
				_ = resp.Body.Close()
			}
			client.CloseIdleConnections()
		})
	}
	eventually(t, "all calls arrive", func() bool { return s.Stats().Inflight == 4 })
	began := time.Now()
	s.stop()
	wg.Wait()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if got := s.Stats(); got.Inflight != 0 || got.Queued != 0 || !accounted(got) {
		t.Errorf("after the stop: %+v", got)
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}
