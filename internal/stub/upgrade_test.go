package stub

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// upgrade opens a connection and switches it to token.
func upgrade(t *testing.T, s running, token string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// The key and the accept value below are the example of RFC 6455 §1.3.
	_, err = io.WriteString(conn, "GET /stub/upgrade HTTP/1.1\r\nhost: stub\r\nconnection: keep-alive, Upgrade\r\nupgrade: "+token+
		"\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("upgrade") != token {
		t.Fatalf("answered %s, upgrade %q", resp.Status, resp.Header.Get("upgrade"))
	}
	return conn, r, resp
}

func TestUpgradeEchoesWebsocketFramesUnmasked(t *testing.T) {
	conn, r, resp := upgrade(t, start(t, Config{}), "websocket")
	if got := resp.Header.Get("sec-websocket-accept"); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("accept is %q", got)
	}
	mask := [4]byte{1, 2, 3, 4}
	cases := []struct {
		first, want byte
		payload     []byte
	}{
		{0x81, 0x81, []byte("hello")},
		{0x82, 0x82, bytes.Repeat([]byte{7}, 300)},
		{0x82, 0x82, bytes.Repeat([]byte{9}, 70_000)},
		{0x89, 0x8A, []byte("ping")},
		{0x88, 0x88, []byte{0x03, 0xE8}},
	}
	for _, c := range cases {
		if _, err := conn.Write(masked(c.first, mask, c.payload)); err != nil {
			t.Fatal(err)
		}
		got, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		if got.first != c.want || !bytes.Equal(got.payload, c.payload) {
			t.Errorf("frame %#x of %d bytes came back as %#x of %d", c.first, len(c.payload), got.first, len(got.payload))
		}
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after the close frame: %v, want the end", err)
	}
}

// masked renders a frame as a client must send it.
func masked(first byte, mask [4]byte, payload []byte) []byte {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	hidden := bytes.Clone(payload)
	for i := range hidden {
		hidden[i] ^= mask[i%4]
	}
	_ = writeFrame(w, frame{first: first, payload: hidden})
	out := b.Bytes()
	head := len(out) - len(payload)
	out[1] |= 0x80
	return append(append(bytes.Clone(out[:head]), mask[:]...), out[head:]...)
}

func TestUpgradeToAnyOtherTokenEchoesBytes(t *testing.T) {
	conn, r, _ := upgrade(t, start(t, Config{}), "raw")
	if _, err := io.WriteString(conn, "any bytes"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("any bytes"))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "any bytes" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestClosingTheStubEndsUpgradedConnections(t *testing.T) {
	s := start(t, Config{})
	_, r, _ := upgrade(t, s, "websocket")
	s.stop()
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection outlived the stub")
	}
}

func FuzzFramesSurviveMasking(f *testing.F) {
	f.Add(byte(0x81), []byte("hello"), uint32(0))
	f.Add(byte(0x02), bytes.Repeat([]byte{1}, 66_000), uint32(0xdeadbeef))
	f.Fuzz(func(t *testing.T, first byte, payload []byte, key uint32) {
		if len(payload) > maxFrameLength {
			return
		}
		mask := [4]byte{byte(key), byte(key >> 8), byte(key >> 16), byte(key >> 24)}
		got, err := readFrame(bufio.NewReader(bytes.NewReader(masked(first, mask, payload))))
		if err != nil || got.first != first || !bytes.Equal(got.payload, payload) {
			t.Errorf("got %#x, %v\n%s", got.first, err, cmp.Diff(payload, got.payload))
		}
	})
}
