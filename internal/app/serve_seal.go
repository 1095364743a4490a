package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/envoy-brownout/brownout/internal/seal"
)

// sealGrace is what answers that still pass the seal get when everything else of the process has ended.
const sealGrace = 200 * time.Millisecond

// makeSeal makes the seal, or nothing with --seal none. It asks the processor which sessions are live.
func (c *serveCmd) makeSeal(s *server) error {
	if c.Seal == off {
		return nil
	}
	dial, err := dialInner(c.Inner)
	if err != nil {
		return err
	}
	s.seal = seal.New(seal.Options{Dial: dial, Live: s.proc.Sealed, Cut: s.proc.UpstreamCut, Logger: s.log})
	return nil
}

// cancelUpstream is what the processor calls to end the upstream's work on a sealed request.
func (s *server) cancelUpstream(id string) {
	if s.seal != nil {
		s.seal.Cancel(id) // false: it has ended by itself
	}
}

// blocked is what the processor asks before it takes a silence for the upstream's.
func (s *server) blocked(id string) bool { return s.seal != nil && s.seal.Blocked(id) }

// finishUpstream is what the processor calls to end a sealed answer that is complete but stays open.
func (s *server) finishUpstream(id string) {
	if s.seal != nil {
		s.seal.Finish(id) // false: it has ended by itself
	}
}

// dialInner connects to Envoy's inner listener, which Envoy opens: it need not be there yet.
func dialInner(addr string) (func(context.Context) (net.Conn, error), error) {
	network, where := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, where = "unix", path
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("--inner %s: want an absolute path", addr)
		}
	} else if err := checkLoopback("--inner", addr); err != nil {
		return nil, err
	}
	d := new(net.Dialer)
	return func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, network, where) }, nil
}

// listenSeal opens the seal's listener, nil with --seal none. Whoever can connect reaches the upstreams past every limit,
// so it is a socket of ours or an address of this machine alone.
func (c *serveCmd) listenSeal(mode os.FileMode) (net.Listener, error) {
	if c.Seal == off {
		return nil, nil
	}
	if path, ok := strings.CutPrefix(c.Seal, "unix:"); ok {
		return listenUnix("--seal", path, mode)
	}
	if err := checkLoopback("--seal", c.Seal); err != nil {
		return nil, err
	}
	return listenTCP("--seal", c.Seal)
}

// checkLoopback refuses an address other machines reach.
func checkLoopback(flag, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s %s: want unix:PATH or 127.0.0.1:PORT", flag, addr)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("%s %s: other machines could reach it (want unix:PATH or 127.0.0.1:PORT)", flag, addr)
	}
	return nil
}

// serveSeal serves the seal, if there is one.
func (s *server) serveSeal(g *errgroup.Group) {
	if s.seal == nil {
		return
	}
	g.Go(func() error { return s.seal.Serve(s.sockets.seal) })
}

// stopSeal ends the seal. Every session has ended before, so what still passes is on its last bytes.
func (s *server) stopSeal(ctx context.Context) {
	if s.seal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealGrace)
	defer cancel()
	if err := s.seal.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("seal did not stop cleanly", "error", err)
	}
}

// debugSeal is the seal's part of /debug/state.
type debugSeal struct {
	InFlight    int            `json:"in_flight"`
	Connections int            `json:"connections"`
	Ended       map[string]int `json:"ended"`
}

// sealState reads the seal's counters; nil without a seal.
func (s *server) sealState() *debugSeal {
	if s.seal == nil {
		return nil
	}
	st := s.seal.Stats()
	d := &debugSeal{InFlight: st.InFlight, Connections: st.Connections, Ended: make(map[string]int, len(st.Ended))}
	for end, n := range st.Ended {
		d.Ended[end.String()] = n
	}
	return d
}
