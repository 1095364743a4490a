package stub

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Constants of RFC 6455.
const (
	websocketGUID  = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
	maxFrameLength = 1 << 20 // of one echoed frame
)

// upgraded are the connections taken over from the HTTP server; their handlers own them and wait for their end.
type upgraded struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

// add registers conn; false means the stub is closing.
func (u *upgraded) add(conn net.Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	if u.conns == nil {
		u.conns = make(map[net.Conn]struct{})
	}
	u.conns[conn] = struct{}{}
	u.wg.Add(1)
	return true
}

func (u *upgraded) remove(conn net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, conn)
	u.wg.Done()
}

func (u *upgraded) closeAll() {
	u.mu.Lock()
	u.closed = true
	for conn := range u.conns {
		_ = conn.Close() // its handler sees the error
	}
	u.mu.Unlock()
	u.wg.Wait()
}

// serveUpgrade switches protocols and echoes: frame by frame for websocket, byte by byte for any other token.
func (s *Stub) serveUpgrade(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("upgrade")
	if token == "" || !strings.Contains(strings.ToLower(r.Header.Get("connection")), "upgrade") {
		w.Header().Set("upgrade", "websocket")
		writeJSON(w, http.StatusUpgradeRequired, problem{Error: PathUpgrade + " needs connection: upgrade and upgrade: websocket, over HTTP/1.1"})
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeJSON(w, http.StatusUpgradeRequired, problem{Error: PathUpgrade + ": " + err.Error() + ": use HTTP/1.1"})
		return
	}
	defer func() { _ = conn.Close() }()
	if !s.upgraded.add(conn) {
		return
	}
	defer s.upgraded.remove(conn)
	if err := handshake(rw.Writer, token, r.Header.Get("sec-websocket-key")); err != nil {
		return // the client left
	}
	if strings.EqualFold(token, "websocket") {
		err = echoFrames(rw)
	} else {
		err = echoBytes(rw)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.cfg.Logger.Warn("upgraded connection ended", "error", err)
	}
}

func handshake(w *bufio.Writer, token, key string) error {
	head := "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: " + token + "\r\n"
	if key != "" {
		sum := sha1.Sum([]byte(key + websocketGUID))
		head += "sec-websocket-accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	}
	if _, err := w.WriteString(head + "\r\n"); err != nil {
		return err
	}
	return w.Flush()
}

func echoBytes(rw *bufio.ReadWriter) error {
	buf := make([]byte, 4096)
	for {
		n, err := rw.Read(buf)
		if n > 0 {
			if _, werr := rw.Write(buf[:n]); werr != nil {
				return werr
			}
			if werr := rw.Flush(); werr != nil {
				return werr
			}
		}
		if err != nil {
			return err
		}
	}
}

// frame is one websocket frame without its mask.
type frame struct {
	first   byte // FIN, RSV and opcode as received
	payload []byte
}

// echoFrames sends every frame back unmasked, answers pings, and ends after a close frame.
func echoFrames(rw *bufio.ReadWriter) error {
	for {
		f, err := readFrame(rw.Reader)
		if err != nil {
			return err
		}
		op := f.first & 0x0f
		switch op {
		case opPing:
			f.first = f.first&0xf0 | opPong
		case opPong:
			continue
		}
		if err := writeFrame(rw.Writer, f); err != nil || op == opClose {
			return err
		}
	}
}

func readFrame(r *bufio.Reader) (frame, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	length := uint64(head[1] & 0x7f)
	switch length {
	case 126:
		var ext [2]byte
		if _, err := io.ReadFull(r, ext[:]); err != nil {
			return frame{}, err
		}
		length = uint64(binary.BigEndian.Uint16(ext[:]))
	case 127:
		var ext [8]byte
		if _, err := io.ReadFull(r, ext[:]); err != nil {
			return frame{}, err
		}
		length = binary.BigEndian.Uint64(ext[:])
	}
	if length > maxFrameLength {
		return frame{}, fmt.Errorf("websocket frame of %d bytes is over the limit of %d", length, maxFrameLength)
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return frame{}, err
		}
	}
	f := frame{first: head[0], payload: make([]byte, length)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, err
	}
	for i := range f.payload {
		f.payload[i] ^= mask[i%4]
	}
	return f, nil
}

func writeFrame(w *bufio.Writer, f frame) error {
	head := []byte{f.first}
	switch n := len(f.payload); {
	case n < 126:
		head = append(head, byte(n))
	case n <= 0xffff:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	if _, err := w.Write(f.payload); err != nil {
		return err
	}
	return w.Flush()
}
