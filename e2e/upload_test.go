package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestAnUpstreamThatBreaksDuringAnUploadIsEnvoysWord: Envoy answers while the request's body is still on its way.
func TestAnUpstreamThatBreaksDuringAnUploadIsEnvoysWord(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			io.CopyN(io.Discard, conn, 64<<10)
			conn.Close()
		}
	}()
	for _, o := range []stackOptions{{noUpstream: true}, {upstreamAddr: ln.Addr().String()}} {
		onEveryWire(t, o, func(t *testing.T, s *stack, c *http.Client) {
			answered := 0
			for range 6 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.envoy.URL(chatPath), bytes.NewReader(make([]byte, 5<<20)))
				if err != nil {
					t.Fatal(err)
				}
				if a := do(c, req); a.err == nil { // else Envoy's answer was lost with the connection it closed behind it
					answered++
					if a.status != 503 && a.status != 502 {
						t.Errorf("got %v, want Envoy's own 502 or 503", a)
					}
					checkHeader(t, a, "x-brownout-source", "envoy")
				}
			}
			if answered == 0 {
				t.Error("no upload was answered")
			}
			s.waitInflight("full", 0, 0)
		})
	}
}
