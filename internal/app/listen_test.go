package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

func TestTheSocketAndItsDirectoryLetInWhomTheModeSays(t *testing.T) {
	for _, c := range []struct {
		mode        string
		socket, dir fs.FileMode
	}{
		{"0600", 0o600, 0o700}, {"660", 0o660, 0o711}, {"0666", 0o666, 0o711},
	} {
		t.Run(c.mode, func(t *testing.T) {
			dir := filepath.Join(shortDir(t), "parent", "brownout")
			s := startServe(t, narrow, "--listen", "unix:"+dir+"/s", "--socket-mode", c.mode)
			checkMode(t, dir, c.dir|fs.ModeDir)
			checkMode(t, dir+"/s", c.socket|fs.ModeSocket)
			if s.listen != "unix:"+dir+"/s" {
				t.Errorf("listens on %s", s.listen)
			}
			s.stop()
			if code := s.ended(); code != ExitOK {
				t.Errorf("exit %d", code)
			}
			if _, err := os.Lstat(dir + "/s"); err == nil {
				t.Error("the socket is left behind")
			}
		})
	}
}

func TestTheUmaskDoesNotLockEnvoyOut(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(shortDir(t), "brownout")
	startServe(t, narrow, "--listen", "unix:"+dir+"/s", "--socket-mode", "0666")
	checkMode(t, dir, 0o711|fs.ModeDir)
	checkMode(t, dir+"/s", 0o666|fs.ModeSocket)
}

func checkMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != want {
		t.Errorf("%s has mode %s, want %s", path, info.Mode(), want)
	}
}

func TestASocketSomebodyAnswersOnIsNotTaken(t *testing.T) {
	s := startServe(t, narrow)
	code, errs := failServe(t, "--policy", s.policy, "--listen", s.listen)
	if want := "--listen " + s.listen + ": another process listens there (stop it, or choose another path)"; code != ExitFailure || !strings.Contains(errs, want) {
		t.Errorf("exit %d, stderr %q, want %q", code, errs, want)
	}
	e := open(t, s.dial()) // the first is unharmed
	e.request()
	e.expect("continue full")
	e.finish()
}

func TestASocketOfADeadProcessIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a process that was killed leaves it
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, narrow, "--listen", "unix:"+path)
	e := open(t, s.dial())
	e.request()
	e.expect("continue full")
	e.finish()
}

func TestWhatIsNoSocketIsNotRemoved(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, errs := failServe(t, "--policy", policyFile(t, narrow), "--listen", "unix:"+path)
	if code != ExitUsage || !strings.Contains(errs, "--listen unix:"+path+": a file that is no socket is in the way (remove it)") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

func TestADirectoryOthersCanWriteToIsRefused(t *testing.T) {
	for _, c := range []struct {
		mode fs.FileMode
		want string // "" means it serves
	}{
		{0o777, "can be written by others (mode 0777): chmod go-w it, or choose another --listen path"},
		{0o770, "can be written by others (mode 0770)"},
		{0o757, "can be written by others (mode 0757)"},
		{0o777 | fs.ModeSticky, ""},
		{0o755, ""},
	} {
		t.Run(c.mode.String(), func(t *testing.T) {
			dir := shortDir(t)
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				startServe(t, narrow, "--listen", "unix:"+dir+"/s")
				return
			}
			code, errs := failServe(t, "--policy", policyFile(t, narrow), "--listen", "unix:"+dir+"/s")
			if code != ExitUsage || !strings.Contains(errs, "directory "+dir+" "+c.want) {
				t.Errorf("exit %d, stderr %q, want %q", code, errs, c.want)
			}
		})
	}
}

func TestADirectoryThatIsNoneIsRefused(t *testing.T) {
	file := policyFile(t, narrow)
	code, errs := failServe(t, "--policy", file, "--listen", "unix:"+file+"/s")
	if code != ExitUsage || !strings.Contains(errs, file+" is not a directory (choose another --listen path)") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
	code, errs = failServe(t, "--policy", file, "--listen", "unix:"+file+"/deeper/s")
	if code != ExitUsage || !strings.Contains(errs, "make the socket's directory") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
}

// foreign is what a directory or link of another user looks like; a test that is not run by root cannot make one.
type foreign struct {
	fs.FileInfo
	mode fs.FileMode
	uid  int
}

func (f foreign) Mode() fs.FileMode { return f.mode }
func (f foreign) IsDir() bool       { return f.mode.IsDir() }
func (f foreign) Sys() any          { return &syscall.Stat_t{Uid: uint32(f.uid)} }

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	other := os.Getuid() + 1
	for _, c := range []struct {
		name string
		info foreign
		bad  bool
	}{
		{"another's", foreign{mode: fs.ModeDir | 0o700, uid: other}, true},
		{"another's link to one of ours", foreign{mode: fs.ModeSymlink | 0o777, uid: other}, true},
		{"root's", foreign{mode: fs.ModeDir | 0o755, uid: 0}, false},
		{"ours", foreign{mode: fs.ModeDir | 0o700, uid: os.Getuid()}, false},
		{"a link of ours", foreign{mode: fs.ModeSymlink | 0o777, uid: os.Getuid()}, false},
	} {
		if err := trusted("--listen", "/run/b", c.info); (err != nil) != c.bad || c.bad && !strings.Contains(err.Error(), "/run/b belongs to another user") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestADirectoryMayBeALinkOfOurs(t *testing.T) {
	dir := shortDir(t)
	if err := os.Mkdir(dir+"/real", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"/real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	startServe(t, narrow, "--listen", "unix:"+dir+"/link/s")
	checkMode(t, dir+"/real/s", fs.ModeSocket|0o600)
	if err := os.Chmod(dir+"/real", 0o777); err != nil {
		t.Fatal(err)
	}
	code, errs := failServe(t, "--policy", policyFile(t, narrow), "--listen", "unix:"+dir+"/link/t")
	if code != ExitUsage || !strings.Contains(errs, "can be written by others") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
}

func TestTCPInClearWorksWhenAskedFor(t *testing.T) {
	s := startServe(t, narrow, "--listen", "127.0.0.1:0", "--insecure")
	e := open(t, s.dial())
	e.request()
	e.expect("continue full")
	e.finish()
}

func TestTCPWithMutualTLSLetsInOnlyWhoseCertificateIsSigned(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.issue(t, dir, "server")
	ca := filepath.Join(dir, "ca.pem")
	writePEM(t, ca, "CERTIFICATE", ours.cert.Raw)
	s := startServe(t, narrow, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)

	trust := x509.NewCertPool()
	trust.AddCert(ours.cert)
	client := func(from *authority) credentials.TransportCredentials {
		config := &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS13}
		if from != nil {
			c, k := from.issue(t, t.TempDir(), "client")
			pair, err := tls.LoadX509KeyPair(c, k)
			if err != nil {
				t.Fatal(err)
			}
			// Sent although the server says whose it takes, as an attacker would.
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return credentials.NewTLS(config)
	}
	e := open(t, s.dial(client(ours)))
	e.request()
	e.expect("continue full")
	e.finish()
	for name, creds := range map[string][]credentials.TransportCredentials{
		"without a certificate": {client(nil)}, "with another authority's": {client(theirs)}, "in clear": nil,
	} {
		if got := replyOf(t, s.dial(creds...)); got != "" {
			t.Errorf("%s: reply %q", name, got)
		}
	}
	if got := s.metric(`brownout_arrivals_total{route="chat"}`); got != 1 {
		t.Errorf("%g requests arrived, want 1", got)
	}
}

// replyOf is the reply to a request, "" when there is none: where a refusal shows is up to the transport.
func replyOf(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	s, err := pb.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		return ""
	}
	_ = s.Send(&pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{
		RequestHeaders: &pb.HttpHeaders{Headers: headerMap(":method", "POST", ":path", "/")}}}) // Recv tells the error too
	m, err := s.Recv()
	if err != nil {
		return ""
	}
	return m.String()
}

func TestTLSFilesThatDoNotFitAreNamed(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t, "ours")
	cert, key := a.issue(t, dir, "server")
	for _, c := range []struct{ cert, key, ca, want string }{
		{cert, key, "/nowhere/ca.pem", "--tls-client-ca: open /nowhere/ca.pem: no such file or directory"},
		{cert, key, key, "--tls-client-ca " + key + ": no certificate in it"},
		{cert, cert, cert, "--tls-cert " + cert + " --tls-key " + cert + ": "},
	} {
		code, errs := failServe(t, "--policy", policyFile(t, narrow), "--listen", "127.0.0.1:0", "--tls-cert", c.cert, "--tls-key", c.key, "--tls-client-ca", c.ca)
		if code != ExitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("exit %d, stderr %q, want %q", code, errs, c.want)
		}
	}
}

// authority signs certificates for this test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	a.cert = sign(t, template, template, a.key, a.key)
	return a
}

// issue writes a certificate for 127.0.0.1 and its key.
func (a *authority) issue(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	cert := sign(t, template, a.cert, key, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", cert.Raw)
	writePEM(t, keyFile, "PRIVATE KEY", der)
	return certFile, keyFile
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
