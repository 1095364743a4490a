package envoy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseUpstreamReadsEveryForm(t *testing.T) {
	for in, want := range map[string]Upstream{
		"full=127.0.0.1:8787":       {Tier: "full", Host: "127.0.0.1", Port: 8787},
		"full=http://gpu:80":        {Tier: "full", Host: "gpu", Port: 80},
		"full=http://gpu:80/":       {Tier: "full", Host: "gpu", Port: 80},
		"a-b_c=h2c://[::1]:8000":    {Tier: "a-b_c", Scheme: SchemeH2C, Host: "::1", Port: 8000},
		"t=https://api.example:443": {Tier: "t", Scheme: SchemeHTTPS, Host: "api.example", Port: 443},
	} {
		got, err := ParseUpstream(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", in, d)
		}
		if again, err := ParseUpstream(got.String()); err != nil || again != got {
			t.Errorf("%q: written as %q, which reads as %+v, %v", in, got, again, err)
		}
	}
}

func TestParseUpstreamRefusesWithARemedy(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "no tier named",
		"http://127.0.0.1:80":       "no tier named",
		"=http://127.0.0.1:80":      "no tier named",
		"full=grpc://h:1":           `unknown scheme "grpc"`,
		"full=http://h":             "not an address with a port",
		"full=http://:80":           "no usable host",
		"full=http://h:port":        `port "port" is not a number`,
		"full=http://h:70000":       `port "70000" is not a number`,
		"full=http://h:0":           "port 0 cannot be reached",
		"full=http://h:80/v1":       "more than an address",
		"full=http://u:secret@h:80": "more than an address",
		"full=http://h h:80":        "no usable host",
	} {
		_, err := ParseUpstream(in)
		oe, ok := errors.AsType[*OptionError](err)
		if !ok || oe.Option != "upstream" || oe.Value != in || oe.Remedy == "" || !strings.Contains(oe.Problem, want) {
			t.Errorf("%q: got %#v, want an *OptionError that says %q", in, err, want)
		}
	}
}

func TestBootstrapNamesEveryBadOptionAtOnce(t *testing.T) {
	_, err := Bootstrap(chatPolicy(), Options{
		Listen:    "localhost:80",
		Processor: "unix:relative.sock",
		Admin:     "9901",
		Upstreams: []Upstream{
			{Tier: "ful", Host: "h", Port: 1},
			{Tier: "small", Host: "h", Port: 1},
			{Tier: "small", Scheme: SchemeHTTPS, Host: "h", Port: 2},
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`listen "localhost:80": "localhost" is not an IP address`,
		`processor "unix:relative.sock": the socket path is not absolute`,
		`envoy-admin "9901": not an address with a port`,
		`upstream "ful=http://h:1": the policy has no model tier "ful" (its tiers: full, small)`,
		`upstream "small=https://h:2": another endpoint of this tier has another scheme`,
		`upstream: tier "full" has no upstream (add --upstream full=http://HOST:PORT)`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestAProcessorAddressIsCheckedBeforeEnvoyIs(t *testing.T) {
	for in, want := range map[string]string{
		"unix:":                             "not absolute",
		"unix:/" + strings.Repeat("x", 107): "108 bytes",
		"host":                              "not an address with a port",
		"host:0":                            "port 0",
	} {
		o := chatOptions()
		o.Processor = in
		if _, err := Bootstrap(chatPolicy(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
}
