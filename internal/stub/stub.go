// Package stub is a model server that answers, stalls, refuses and breaks in the ways real ones do, on demand and
// deterministically. It is the upstream of tests, of the demo and of load runs, and the judge of what reached it: its
// counters say how many model calls started, how many ran at once and how much work was done for clients that had left.
//
// It stands outside brownout: it imports no other package of this module and knows nothing of limits in front of it.
// Every path that is not its own ([PathStats] and its neighbours) is a model call. A model call is in flight from the
// moment its body has been read until its last byte is about to be written, whether it waits in the hidden queue or runs.
// Every call ends in exactly one of finished, cancelled, wasted or throttled (at the door, never in flight), so that
// arrived = finished + cancelled + wasted + throttled + inflight at any instant, unless calls were in flight at a reset.
//
// A *Stub is safe for use from any number of goroutines.
package stub

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Paths the stub answers itself. All others are model calls.
const (
	PathHealth  = "/healthz"
	PathStats   = "/stub/stats"
	PathReset   = "/stub/reset"
	PathUpgrade = "/stub/upgrade"
	// PathWarm answers 204 and is not counted: load generators open their connections with it.
	PathWarm = "/brownout-warm-up"
)

// Headers a request may carry to choose its own answer.
const (
	HeaderMode    = "x-stub-mode"    // a Mode; overrides Config.Mode
	HeaderLatency = "x-stub-latency" // as ParseLatency; overrides Config.Latency
	HeaderID      = "x-stub-id"      // what a lognormal latency is drawn from; else x-request-id, else the arrival number
	HeaderChunks  = "x-stub-chunks"  // content chunks of mode stream; overrides Config.Chunks
	HeaderGap     = "x-stub-gap"     // time between chunks of mode stream; overrides Config.Gap
	HeaderEcho    = "x-stub-echo"    // "1": a JSON answer's body is the request as the stub saw it
	HeaderWave    = "x-stub-wave"    // 1 to MaxWave: which attempt of its client this is; counted in Stats.StartedByWave
)

// Headers of every model answer.
const (
	HeaderBodyBytes  = "x-stub-body-bytes"  // how many bytes of request body were read
	HeaderBodySHA256 = "x-stub-body-sha256" // their digest, in hex
)

// Bounds of what a request may ask for.
const (
	MaxWave   = 16
	maxChunks = 100_000
)

// Config says how a stub behaves. The zero value answers at once, without limit, in mode ok.
type Config struct {
	Mode        Mode          // of requests without HeaderMode; zero means ModeOK
	Latency     Latency       // service time once a slot is held; zero means none
	Slots       int           // model calls that run at once; the rest wait in a hidden FIFO queue without bound. 0 means unlimited
	Seed        uint64        // of lognormal latencies
	KeepRunning bool          // a call whose client has left runs to its end and is counted as wasted, like a GPU that does not honour a cancel
	Chunks      int           // content chunks of mode stream; 0 means 8
	Gap         time.Duration // between those chunks; 0 means none
	Logger      *slog.Logger  // server errors; nil means silent
}

// Stub is the handler. Close ends what is left; New is the only way to make one.
type Stub struct {
	cfg   Config
	slots *slots
	count counters

	stopOnce sync.Once
	stop     chan struct{} // closed by Close
	upgraded upgraded
}

// New returns a stub for cfg, or an error that names the field which is out of range.
func New(cfg Config) (*Stub, error) {
	if cfg.Mode == "" {
		cfg.Mode = ModeOK
	}
	if !cfg.Mode.Valid() {
		return nil, fmt.Errorf("mode %q is unknown: use one of %s", cfg.Mode, strings.Join(ModeNames(), ", "))
	}
	if cfg.Slots < 0 {
		return nil, fmt.Errorf("slots %d is negative: use 0 for no limit", cfg.Slots)
	}
	if cfg.Chunks == 0 {
		cfg.Chunks = 8
	}
	if cfg.Chunks < 0 || cfg.Chunks > maxChunks {
		return nil, fmt.Errorf("chunks %d is out of range: use 1 to %d", cfg.Chunks, maxChunks)
	}
	if cfg.Gap < 0 {
		return nil, fmt.Errorf("gap %s is negative: use 0 or more", cfg.Gap)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Stub{cfg: cfg, slots: newSlots(cfg.Slots), stop: make(chan struct{})}, nil
}

// Close breaks every call that still waits or runs and every upgraded connection, and waits for the latter.
// It may be called more than once.
func (s *Stub) Close() {
	s.stopOnce.Do(func() { close(s.stop) })
	s.upgraded.closeAll()
}

// Stats returns the counters as of now.
func (s *Stub) Stats() Stats { return s.count.snapshot() }

// Reset zeroes the counters and sets the maxima to what is in flight. Calls that arrived before it leave no trace in
// the counters of ended calls.
func (s *Stub) Reset() { s.count.reset() }

// ServeHTTP routes between the stub's own paths and the model.
func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case PathHealth:
		_, _ = io.WriteString(w, "ok\n")
	case PathWarm:
		w.WriteHeader(http.StatusNoContent)
	case PathStats:
		writeJSON(w, http.StatusOK, s.Stats())
	case PathReset:
		s.serveReset(w, r)
	case PathUpgrade:
		s.serveUpgrade(w, r)
	default:
		if strings.HasPrefix(r.URL.Path, "/stub/") {
			writeJSON(w, http.StatusNotFound, problem{Error: "the stub has no such path of its own; see brownout stub --help"})
			return
		}
		s.serveModel(w, r)
	}
}

func (s *Stub) serveReset(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("allow", http.MethodPost)
		writeJSON(w, http.StatusMethodNotAllowed, problem{Error: "reset needs POST"})
		return
	}
	s.Reset()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Stub) serveModel(w http.ResponseWriter, r *http.Request) {
	a, err := s.ask(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, problem{Error: err.Error()})
		return
	}
	if a.body, err = readBody(r); err != nil {
		// The client left during the upload: no model ever saw this request.
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	setHeader(h, HeaderBodyBytes, strconv.FormatInt(a.body.bytes, 10))
	setHeader(h, HeaderBodySHA256, a.body.sha256)
	if a.mode == ModeThrottle {
		s.count.throttle()
		setHeader(h, "retry-after", "2")
		_ = writeBody(w, a, http.StatusTooManyRequests, bodyThrottle) // a reader that left needs no answer
		return
	}
	c := s.begin(r.Context(), a.wave)
	defer c.abandon()
	if err := s.answer(w, c, a); err != nil {
		// Nobody may take what has been written so far for a whole answer.
		panic(http.ErrAbortHandler)
	}
}

// ask is what one model call asked for, headers and body together.
type ask struct {
	r       *http.Request
	mode    Mode
	latency time.Duration
	chunks  int
	gap     time.Duration
	wave    int
	echo    bool
	body    body
}

// ask reads the x-stub headers of r over the configured defaults.
func (s *Stub) ask(r *http.Request) (ask, error) {
	a := ask{r: r, mode: s.cfg.Mode, chunks: s.cfg.Chunks, gap: s.cfg.Gap, echo: r.Header.Get(HeaderEcho) == "1"}
	if v := r.Header.Get(HeaderMode); v != "" {
		if a.mode = Mode(v); !a.mode.Valid() {
			return a, fmt.Errorf("%s: mode %q is unknown: use one of %s", HeaderMode, v, strings.Join(ModeNames(), ", "))
		}
	}
	latency := s.cfg.Latency
	if v := r.Header.Get(HeaderLatency); v != "" {
		var err error
		if latency, err = ParseLatency(v); err != nil {
			return a, fmt.Errorf("%s: %w", HeaderLatency, err)
		}
	}
	a.latency = latency.Draw(s.cfg.Seed, s.requestID(r))
	if v := r.Header.Get(HeaderGap); v != "" {
		gap, err := ParseLatency(v)
		if err != nil || !gap.Fixed() {
			return a, fmt.Errorf("%s: %q is not a duration such as 5ms", HeaderGap, v)
		}
		a.gap = gap.Mean()
	}
	var err error
	if a.chunks, err = intHeader(r, HeaderChunks, a.chunks, maxChunks); err != nil {
		return a, err
	}
	a.wave, err = intHeader(r, HeaderWave, 0, MaxWave)
	return a, err
}

func (s *Stub) requestID(r *http.Request) string {
	for _, name := range []string{HeaderID, "x-request-id"} {
		if v := r.Header.Get(name); v != "" {
			return v
		}
	}
	return strconv.FormatUint(s.count.serial.Add(1), 10)
}

func intHeader(r *http.Request, name string, absent, highest int) (int, error) {
	v := r.Header.Get(name)
	if v == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > highest {
		return 0, fmt.Errorf("%s: %q is not a whole number from 1 to %d", name, v, highest)
	}
	return n, nil
}

// errTruncated is how mode truncate ends.
var errTruncated = errors.New("the socket is destroyed on purpose")

// errLeft is why a call ended before its work did.
var errLeft = errors.New("the client has left or the stub is closing")
