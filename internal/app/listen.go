package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// off turns an optional listener off.
const off = "none"

// errInUse is a failure of the moment: the same command may work later.
var errInUse = errors.New("another process listens there")

// listen opens the listeners. On error the ones already open are in the result.
func (c *serveCmd) listen() (s sockets, err error) {
	mode, err := c.socketMode()
	if err != nil {
		return s, err
	}
	if path, ok := strings.CutPrefix(c.Listen, "unix:"); ok {
		s.grpc, err = listenUnix("--listen", path, mode)
	} else {
		s.grpc, err = listenTCP("--listen", c.Listen)
	}
	if err != nil {
		return s, err
	}
	if s.seal, err = c.listenSeal(mode); err != nil {
		return s, err
	}
	if s.http, err = listenTCP("--http", c.HTTP); err != nil {
		return s, err
	}
	s.admin, err = listenTCP("--admin", c.Admin)
	return s, err
}

func listenTCP(flag, addr string) (net.Listener, error) {
	if addr == off {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: %w (stop it, or choose another port)", flag, addr, errInUse)
	case err != nil && flag != "--http" && flag != "--admin":
		return nil, fmt.Errorf("%s %s: %w (want unix:PATH or HOST:PORT)", flag, addr, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w (want HOST:PORT or none)", flag, addr, err)
	}
	return l, nil
}

// listenUnix listens on a socket that only mode lets in, in a directory nobody else can put things into. A socket
// file that a dead process left is replaced; one that somebody answers on is not.
func listenUnix(flag, path string, mode os.FileMode) (net.Listener, error) {
	if path == "" || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s unix:%s: want an absolute path", flag, path)
	}
	if err := ownDirectory(flag, filepath.Dir(path), mode); err != nil {
		return nil, err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close() // it only showed that somebody is there
		return nil, fmt.Errorf("%s unix:%s: %w (stop it, or choose another path)", flag, path, errInUse)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s unix:%s: a file that is no socket is in the way (remove it)", flag, path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("%s unix:%s: remove the socket a dead process left: %w", flag, path, err)
		}
	}
	l, err := net.Listen("unix", path)
	switch {
	case errors.Is(err, syscall.EINVAL):
		return nil, fmt.Errorf("%s unix:%s: the path is too long for a socket: %d bytes (choose one below 104)", flag, path, len(path))
	case err != nil:
		return nil, fmt.Errorf("%s unix:%s: %w", flag, path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("%s unix:%s: %w", flag, path, err), l.Close())
	}
	return l, nil
}

// ownDirectory makes the socket's directory, or checks the one that is there: whoever can write to it could put a
// socket of his own in our place.
func ownDirectory(flag, dir string, mode os.FileMode) error {
	enter := os.FileMode(0o700)
	if mode&0o077 != 0 { // others may connect, so they must get to the socket
		enter = 0o711
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the socket's directory: %w", err)
	}
	if err := os.Mkdir(dir, enter); err == nil {
		return os.Chmod(dir, enter) // whatever the umask
	}
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} { // a link, then what it points to
		info, err := look(dir)
		if err != nil {
			return fmt.Errorf("make the socket's directory: %w", err)
		}
		if err := trusted(flag, dir, info); err != nil {
			return err
		}
	}
	return nil
}

// trusted says whether only we and root decide what lies in dir, or where it points if it is a link.
func trusted(flag, dir string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && st.Uid != 0 && int(st.Uid) != os.Getuid():
		return fmt.Errorf("directory %s belongs to another user (uid %d): choose another %s path", dir, st.Uid, flag)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil
	case !info.IsDir():
		return fmt.Errorf("make the socket's directory: %s is not a directory (choose another %s path)", dir, flag)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("directory %s can be written by others (mode %04o): chmod go-w it, or choose another %s path", dir, info.Mode().Perm(), flag)
	}
	return nil
}

// credentials are mutual TLS for a TCP listener. In clear only on a unix socket or by --insecure.
func (c *serveCmd) credentials() ([]grpc.ServerOption, error) {
	if c.Listen == off {
		return nil, errors.New("--listen none: Envoy has to reach the processor (want unix:PATH or HOST:PORT)")
	}
	given := c.TLSCert != "" || c.TLSKey != "" || c.TLSCA != ""
	if strings.HasPrefix(c.Listen, "unix:") {
		if given {
			return nil, errors.New("--tls-cert, --tls-key and --tls-client-ca are for a TCP --listen")
		}
		return nil, nil
	}
	if !given {
		if c.Insecure {
			return nil, nil
		}
		return nil, fmt.Errorf("--listen %s: TCP needs --tls-cert, --tls-key and --tls-client-ca, or --insecure", c.Listen)
	}
	if c.TLSCert == "" || c.TLSKey == "" || c.TLSCA == "" {
		return nil, errors.New("--tls-cert, --tls-key and --tls-client-ca go together")
	}
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s --tls-key %s: %w", c.TLSCert, c.TLSKey, err)
	}
	pem, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-client-ca %s: no certificate in it", c.TLSCA)
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	}))}, nil
}
