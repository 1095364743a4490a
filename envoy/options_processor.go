package envoy

import (
	"errors"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// ProcessorTLS are PEM files on Envoy's machine, which are not read here, for mutual TLS towards a processor on TCP. The
// zero value is no TLS; otherwise all three are needed.
type ProcessorTLS struct {
	CA   string // authorities that have signed the processor's certificate, whose name must be the processor's host
	Cert string // Envoy's certificate, signed by an authority of `brownout serve --tls-client-ca`
	Key  string // the certificate's private key
}

// checkProcessorTLS wants all of it, or nothing; and nothing on a Unix socket.
func (p *parsed) checkProcessorTLS() error {
	t := p.ProcessorTLS
	if t == (ProcessorTLS{}) {
		return nil
	}
	var errs []error
	for _, f := range []struct{ option, file string }{{"processor-ca", t.CA}, {"processor-cert", t.Cert}, {"processor-key", t.Key}} {
		switch {
		case f.file == "":
			errs = append(errs, &OptionError{Option: f.option, Problem: "missing beside the other files for the processor", Remedy: "--processor-ca, --processor-cert and --processor-key go together"})
		case p.processor.path != "":
			errs = append(errs, &OptionError{f.option, f.file, "the processor is on a Unix socket, where there is no TLS", "leave it out, or give --processor HOST:PORT"})
		}
	}
	return errors.Join(errs...)
}

// processorSocket is mutual TLS 1.3, as `brownout serve` asks for it. Envoy's clients stop at 1.2 unless told.
func processorSocket(pack *packer, host string, t ProcessorTLS) *corev3.TransportSocket {
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
	}
	kind, sni := tlsv3.SubjectAltNameMatcher_DNS, host
	if _, err := netip.ParseAddr(host); err == nil {
		kind, sni = tlsv3.SubjectAltNameMatcher_IP_ADDRESS, "" // RFC 6066 §3: no addresses there
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack.any(&tlsv3.UpstreamTlsContext{
			Sni: sni,
			CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsParams: &tlsv3.TlsParameters{
					TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
					TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
				},
				AlpnProtocols:   []string{"h2"},
				TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: file(t.Cert), PrivateKey: file(t.Key)}},
				ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
					ValidationContext: &tlsv3.CertificateValidationContext{
						TrustedCa:                 file(t.CA),
						MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{SanType: kind, Matcher: exact(host)}},
					},
				},
			},
		})},
	}
}

// serveFlags are the flags of `brownout serve` that go with this configuration.
func (p *parsed) serveFlags() string {
	flags := "--listen " + p.Processor
	switch {
	case p.processor.path != "":
	case p.ProcessorTLS != (ProcessorTLS{}):
		flags += " --tls-cert FILE --tls-key FILE --tls-client-ca FILE"
	default:
		flags += " --insecure"
	}
	return flags
}
