package envoy

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// oldestMinor is the oldest Envoy 1.x the generated configuration is tested on.
const oldestMinor = 36

var versionPattern = regexp.MustCompile(`^1\.([0-9]{1,3})(\.[0-9]{1,3})?$`)

// versionRuntime is what a version of Envoy needs set at run time. Envoy 1.36 shows the plugin none of its own answers
// (skip_ext_proc_on_local_reply), so that an unreachable upstream looks like a caller that left. From 1.37 on the
// switch is gone, and setting it is an error.
func versionRuntime(version string) (map[string]bool, error) {
	if version == "" {
		return nil, nil
	}
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return nil, &OptionError{"envoy-version", version, "not a version of Envoy", "write 1.MINOR, for example 1.40"}
	}
	minor, _ := strconv.Atoi(m[1]) // up to three digits
	switch {
	case minor < oldestMinor:
		return nil, &OptionError{"envoy-version", version, "too old for this configuration", fmt.Sprintf("use Envoy 1.%d or newer", oldestMinor)}
	case minor == 36:
		return map[string]bool{"envoy.reloadable_features.skip_ext_proc_on_local_reply": false}, nil
	}
	return nil, nil
}

// layeredRuntime sets reloadable features; nil when there are none.
func layeredRuntime(features map[string]bool) *bootstrapv3.LayeredRuntime {
	if len(features) == 0 {
		return nil
	}
	fields := make(map[string]*structpb.Value, len(features))
	for name, on := range features {
		fields[name] = structpb.NewBoolValue(on)
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name:           "version",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: fields}},
	}}}
}

// parseNetworks reads CIDRs and returns all problems joined.
func parseNetworks(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, s := range list {
		n, err := netip.ParsePrefix(s)
		if err != nil {
			errs = append(errs, &OptionError{"internal", s, "not a network", "write a CIDR, for example 10.0.0.0/8"})
			continue
		}
		out = append(out, n.Masked())
	}
	return out, errors.Join(errs...)
}
