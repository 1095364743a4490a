package envoy

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/envoy-brownout/brownout/policy"
)

// ConfigHash identifies what s contributes to the Envoy configuration: the first 16 hex digits of the SHA-256 of
// everything Bootstrap renders, with every address replaced by a fixed one.
//
// Bootstrap announces it to the plugin as the initial metadata brownout-config-hash. A plugin that computes another
// value from its own policy knows that this Envoy runs the configuration of another policy or of another version of
// brownout. What Envoy does not need to know (queue order, priorities, default budgets, comments) does not change
// it; neither do addresses, the number of endpoints, or TLS. It is empty only for a snapshot that Bootstrap refuses.
func ConfigHash(s *policy.Snapshot) string {
	o := Options{Listen: "127.0.0.1:1", Admin: "127.0.0.1:2", AccessLog: DefaultAccessLog}
	for _, t := range s.Tiers {
		if t.Model != nil {
			o.Upstreams = append(o.Upstreams, Upstream{Tier: t.Name, Host: "127.0.0.1", Port: 3})
		}
	}
	p, err := o.parse(s)
	if err != nil {
		return ""
	}
	b, err := build(s, p, "")
	if err != nil {
		return ""
	}
	text, err := toYAML(b)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
