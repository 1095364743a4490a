package envoy

import (
	"strings"
	"testing"
)

func TestVersionDecidesTheRuntime(t *testing.T) {
	const feature = "envoy.reloadable_features.skip_ext_proc_on_local_reply"
	for version, want := range map[string]bool{"": false, "1.36": true, "1.36.4": true, "1.37": false, "1.40.0": false} {
		out, err := Bootstrap(chatPolicy(), with(func(o *Options) { o.EnvoyVersion = version }))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(out), feature+": false"); got != want {
			t.Errorf("version %q: sets %s: %t, want %t", version, feature, got, want)
		}
	}
	for _, version := range []string{"1.35", "2.0", "latest", "1", "1.36.4.1"} {
		if _, err := versionRuntime(version); err == nil || !strings.Contains(err.Error(), `envoy-version "`+version+`"`) {
			t.Errorf("version %q: error %v, want one that names flag and value", version, err)
		}
	}
}

func TestInternalNetworks(t *testing.T) {
	got, err := parseNetworks([]string{"10.1.2.3/8", "fd00::/8"})
	if err != nil || len(got) != 2 || got[0].String() != "10.0.0.0/8" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseNetworks([]string{"10.0.0.0", "x/8"}); err == nil || strings.Count(err.Error(), "not a network") != 2 {
		t.Errorf("error %v, want both values named", err)
	}
	out, err := Bootstrap(chatPolicy(), with(func(o *Options) { o.Internal = []string{"10.0.0.0/8"} }))
	if err != nil || !strings.Contains(string(out), "use_remote_address: true") || !strings.Contains(string(out), "address_prefix: 10.0.0.0") {
		t.Errorf("configuration without the trusted network, error %v:\n%s", err, out)
	}
}

func with(change func(*Options)) Options {
	o := chatOptions()
	change(&o)
	return o
}
