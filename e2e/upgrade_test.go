package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/envoy-brownout/brownout/envoy"
)

// realtimePolicy has a route without methods: upgrades may take it.
const realtimePolicy = `version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
- name: realtime
  match: {path: {prefix: /v1/realtime}}
  ladder: [full]
`

// TestAWebsocketPassesAroundAPresentBrownout: Envoy takes it to the upstream without asking, whatever each side speaks,
// while requests beside it are decided on.
func TestAWebsocketPassesAroundAPresentBrownout(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			upstream := startEchoH1(t)
			if w.upstream == envoy.SchemeH2C {
				upstream = startEchoH2(t)
			}
			s := startStack(t, stackOptions{policy: realtimePolicy, scheme: w.upstream, upstreamAddr: upstream})
			for _, path := range []string{"/v1/realtime", "/elsewhere"} {
				upgrade := upgradeH1
				if w.h2 {
					upgrade = upgradeH2
				}
				status, tier, echo := upgrade(t, s.envoy.Addr, path)
				if want := map[bool]string{false: "101", true: "200"}[w.h2]; status != want || tier != "" || echo != "echo ping\n" {
					t.Errorf("%s: status %s, the upstream saw x-tier %q, echo %q; want %s, none and the ping", path, status, tier, echo, want)
				}
			}
			if n := s.envoy.Stats("http.front.ext_proc.streams_started"); n != 0 {
				t.Errorf("brownout was asked %d times about an upgrade", n)
			}
			if a := s.send(t.Context(), newClient(t, w.h2), chatPath); a.header.Get("x-brownout-source") == "" {
				t.Errorf("a request beside it: %v, want it decided on", a)
			}
			if n := s.metric("brownout_arrivals_total"); n != 1 {
				t.Errorf("%d arrivals, want the request alone", n)
			}
		})
	}
}

// startEchoH1 is an upstream that switches protocols, and answers everything else.
func startEchoH1(t *testing.T) (addr string) {
	t.Helper()
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("upgrade") != "" {
			echoUpgrade(w, r)
		}
	}))
	t.Cleanup(u.Close)
	return strings.TrimPrefix(u.URL, "http://")
}

// upgradeH1 asks for a websocket as RFC 6455 does and sends a line through it.
func upgradeH1(t *testing.T, addr, path string) (status, tier, echo string) {
	t.Helper()
	conn := dialEnvoy(t, addr)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Tier: planted\r\n\r\n", path)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "ping\n")
	echo, err = r.ReadString('\n')
	if err != nil {
		t.Errorf("read through the upgraded connection: %v", err)
	}
	return fmt.Sprint(resp.StatusCode), resp.Header.Get("X-Received-Tier"), echo
}

func dialEnvoy(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// h2Peer is one end of an HTTP/2 connection that takes extended CONNECT (RFC 8441), which net/http does not.
type h2Peer struct {
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

func newH2Peer(conn net.Conn) *h2Peer {
	p := &h2Peer{conn: conn, framer: http2.NewFramer(conn, conn)}
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
	return p
}

// headers writes a header block of names and values in turn.
func (p *h2Peer) headers(stream uint32, end bool, fields ...string) error {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: end})
}

// next reads up to the next frame of a stream, and does what the connection needs on the way.
func (p *h2Peer) next() (http2.Frame, error) {
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			if err := p.framer.WriteSettingsAck(); err != nil {
				return nil, err
			}
			return f, nil
		case *http2.PingFrame:
			if err := p.framer.WritePing(true, f.Data); err != nil {
				return nil, err
			}
		case *http2.WindowUpdateFrame:
		default:
			return f, nil
		}
	}
}

// upgradeH2 asks for a websocket by extended CONNECT and sends a line through it.
func upgradeH2(t *testing.T, addr, path string) (status, tier, echo string) {
	t.Helper()
	p := newH2Peer(dialEnvoy(t, addr))
	if _, err := io.WriteString(p.conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := p.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for echo == "" {
		f, err := p.next()
		if err != nil {
			t.Fatalf("status %q: %v", status, err)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingEnableConnectProtocol); !ok || v != 1 {
				t.Fatal("Envoy does not take extended CONNECT")
			}
			if err := p.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", path, ":authority", "x", "x-tier", "planted"); err != nil {
				t.Fatal(err)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				switch h.Name {
				case ":status":
					status = h.Value
				case "x-received-tier":
					tier = h.Value
				}
			}
			if f.StreamEnded() || p.framer.WriteData(1, false, []byte("ping\n")) != nil {
				return status, tier, echo
			}
		case *http2.DataFrame:
			echo += string(f.Data())
		case *http2.RSTStreamFrame:
			t.Fatalf("status %q, reset: %s", status, f.ErrCode)
		}
	}
	return status, tier, echo
}

// startEchoH2 is an upstream over cleartext HTTP/2 that takes extended CONNECT, and answers everything else.
func startEchoH2(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() { serveEchoH2(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

// serveEchoH2 serves one connection until it breaks.
func serveEchoH2(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	p := newH2Peer(conn)
	if p.framer.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1}) != nil {
		return
	}
	for {
		f, err := p.next()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			method, tier := "", ""
			for _, h := range f.Fields {
				switch h.Name {
				case ":method":
					method = h.Value
				case "x-tier":
					tier = h.Value
				}
			}
			err = p.headers(f.StreamID, method != "CONNECT", ":status", "200", "x-received-tier", tier)
		case *http2.DataFrame:
			if len(f.Data()) > 0 && !f.StreamEnded() {
				err = p.framer.WriteData(f.StreamID, false, append([]byte("echo "), f.Data()...))
			}
		}
		if err != nil {
			return
		}
	}
}
