package envoy

import (
	"strings"
	"testing"
)

func TestAProcessorOnTCPIsReachedOverMutualTLS(t *testing.T) {
	o := chatOptions()
	o.Processor, o.ProcessorTLS = "brownout.svc:9000", ProcessorTLS{CA: "/etc/b/ca.pem", Cert: "/etc/b/cert.pem", Key: "/etc/b/key.pem"}
	out := string(bootstrap(t, chatPolicy(), o))
	validateDeep(t, readBack(t, []byte(out)))
	for _, want := range []string{
		"brownout serve --policy FILE --listen brownout.svc:9000 --tls-cert FILE --tls-key FILE --tls-client-ca FILE ",
		"sni: brownout.svc\n", "filename: /etc/b/ca.pem\n", "filename: /etc/b/cert.pem\n", "filename: /etc/b/key.pem\n", "tls_minimum_protocol_version: TLSv1_3\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
	o.ProcessorTLS = ProcessorTLS{}
	out = string(bootstrap(t, chatPolicy(), o))
	if !strings.Contains(out, "--listen brownout.svc:9000 --insecure ") || strings.Contains(out, "sni:") {
		t.Error("without files it is not in clear, or the preamble names a command that would fail")
	}
}

func TestTheProcessorsFilesGoTogetherAndWithTCP(t *testing.T) {
	for name, c := range map[string]struct {
		processor string
		files     ProcessorTLS
		want      []string
	}{
		"one missing":      {"10.0.0.1:9000", ProcessorTLS{CA: "ca", Cert: "cert"}, []string{"processor-key: missing"}},
		"two missing":      {"10.0.0.1:9000", ProcessorTLS{Key: "key"}, []string{"processor-ca: missing", "processor-cert: missing"}},
		"on a Unix socket": {"unix:/s", ProcessorTLS{"ca", "cert", "key"}, []string{`processor-ca "ca": the processor is on a Unix socket`, `processor-cert "cert"`, `processor-key "key"`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := chatOptions()
			o.Processor, o.ProcessorTLS = c.processor, c.files
			_, err := Bootstrap(chatPolicy(), o)
			if err == nil {
				t.Fatal("accepted")
			}
			if lines := strings.Split(err.Error(), "\n"); len(lines) != len(c.want) {
				t.Errorf("%d problems, want %d: %v", len(lines), len(c.want), err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
}
