package stub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	shutdownGrace = 2 * time.Second
	// maxStreams bounds the calls on one HTTP/2 connection. The hidden queue has no bound, so the transport must not be one.
	maxStreams = 1 << 16
)

// Serve answers HTTP/1.1 and cleartext HTTP/2 (prior knowledge) on ln until ctx ends; then it closes s, gives
// connections two seconds to end, and closes what is left. It owns ln. A nil error means that ctx ended it.
func Serve(ctx context.Context, ln net.Listener, s *Stub) error {
	srv := &http.Server{
		Handler:           s,
		Protocols:         protocols(),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		s.Close()
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // the grace is over; what is cut here was told to end two seconds ago
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}
