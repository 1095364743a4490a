package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
)

// authority signs certificates of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.file, _ = a.sign("authority", true)
	return a
}

// sign makes a certificate for 127.0.0.1 and returns its files. The first one is the authority itself.
func (a *authority) sign(name string, isCA bool) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: isCA,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if isCA {
		a.cert, a.key = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if isCA {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+"-key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

// TestTheProcessorOverMutualTLS: brownout lets in only Envoys of its authority, and Envoy asks only a brownout of its own.
func TestTheProcessorOverMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	for name, c := range map[string]struct {
		envoys, trusted *authority // of Envoy's certificate; of what Envoy trusts
		decided         bool
	}{
		"both known":                   {ours, ours, true},
		"an Envoy nobody vouches for":  {theirs, ours, false},
		"a brownout Envoy cannot know": {ours, theirs, false},
	} {
		t.Run(name, func(t *testing.T) {
			cert, key := ours.sign("processor", false)
			clientCert, clientKey := c.envoys.sign("envoy", false)
			s := startStack(t, stackOptions{
				tcp:          true,
				serve:        []string{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.file},
				processorTLS: envoy.ProcessorTLS{CA: c.trusted.file, Cert: clientCert, Key: clientKey},
			})
			a := s.send(t.Context(), newClient(t, false), chatPath)
			if a.status != 200 || (a.header.Get("x-brownout-source") != "") != c.decided {
				t.Errorf("%v, want it decided on: %t", a, c.decided)
			}
			if n := s.metric("brownout_arrivals_total"); n > 0 != c.decided {
				t.Errorf("%d arrivals", n)
			}
		})
	}
}
