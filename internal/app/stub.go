package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/envoy-brownout/brownout/internal/stub"
)

// stubCmd runs the stub inference server until its context ends.
type stubCmd struct {
	Listen      string        `default:"127.0.0.1:8787" placeholder:"HOST:PORT" help:"Where to answer HTTP/1.1 and cleartext HTTP/2 (prior knowledge), on one port; 127.0.0.1:8787 if absent."`
	Mode        string        `default:"ok" env:"MODE" help:"How to answer requests without an x-stub-mode header; see below."`
	Latency     string        `default:"0ms" placeholder:"D|lognormal:MEAN,CV" help:"Service time once a slot is held, such as 30ms or lognormal:100ms,0.7."`
	Slots       int           `default:"0" placeholder:"N" help:"Model calls that run at once; the rest wait in a hidden queue without bound. 0: no limit."`
	Seed        uint64        `default:"1" help:"Seed of lognormal latencies: the same request id costs the same in every run."`
	KeepRunning bool          `help:"A call whose client has left runs to its end and is counted as wasted, like a GPU that ignores a cancel."`
	Chunks      int           `default:"8" help:"Content chunks of mode stream."`
	Gap         time.Duration `default:"0ms" help:"Time between those chunks."`
}

// Help is the second half of "brownout stub --help".
func (c *stubCmd) Help() string {
	return `Modes and what they answer:

` + stub.Help() + `
A request may choose for itself:

  x-stub-mode: MODE          x-stub-latency: D
  x-stub-chunks: N           x-stub-gap: D
  x-stub-id: ID              what a lognormal latency is drawn from (else x-request-id)
  x-stub-echo: 1             the body of a JSON answer is the request as the stub saw it
  x-stub-wave: N             which attempt of its client this is; counted in the stats

Every model answer says in x-stub-body-bytes and x-stub-body-sha256 what it read.

Paths that are not model calls:

  GET  /stub/stats           {inflight, inflight_max, queued, queued_max, arrived, started,
                             finished, cancelled, wasted, throttled, started_by_wave}
  POST /stub/reset           counters to zero, maxima to what is in flight
  GET  /stub/upgrade         upgrade: websocket echoes frames, any other token echoes bytes
  GET  /healthz              ok
  any  /brownout-warm-up     204, not counted
`
}

// Run serves until ctx ends.
func (c *stubCmd) Run(ctx context.Context, io Stdio) error {
	latency, err := stub.ParseLatency(c.Latency)
	if err != nil {
		return usageError(fmt.Errorf("--latency: %w", err))
	}
	s, err := stub.New(stub.Config{
		Mode: stub.Mode(c.Mode), Latency: latency, Slots: c.Slots, Seed: c.Seed, KeepRunning: c.KeepRunning,
		Chunks: c.Chunks, Gap: c.Gap, Logger: slog.New(slog.NewTextHandler(io.Err, nil)),
	})
	if err != nil {
		return usageError(err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("stub: %w: choose another address with --listen, or port 0 for any free one", err)
	}
	fmt.Fprintf(io.Err, "stub: listening on http://%s (mode %s, latency %s, slots %s)\n",
		ln.Addr(), c.Mode, latency, slotsText(c.Slots))
	return stub.Serve(ctx, ln, s)
}

func slotsText(n int) string {
	if n == 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}
