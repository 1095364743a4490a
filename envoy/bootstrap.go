package envoy

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/envoy-brownout/brownout/policy"
)

// Bootstrap renders a complete Envoy configuration for s as YAML, with a comment on how it was made and what to
// start beside it. The same arguments give the same bytes. The error joins one *OptionError per bad option; any
// other error means that the policy holds a value Envoy's own validation refuses.
func Bootstrap(s *policy.Snapshot, o Options) ([]byte, error) {
	p, err := o.parse(s)
	if err != nil {
		return nil, err
	}
	hash := ConfigHash(s)
	b, err := build(s, p, hash)
	if err != nil {
		return nil, err
	}
	body, err := toYAML(b)
	if err != nil {
		return nil, err
	}
	return append(preamble(s, p, hash), body...), nil
}

// build assembles the configuration. hash is announced to the plugin.
func build(s *policy.Snapshot, p *parsed, hash string) (*bootstrapv3.Bootstrap, error) {
	pack := new(packer)
	b := &bootstrapv3.Bootstrap{
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: listeners(pack, s, p, hash),
			Clusters:  clusters(pack, s, p),
		},
	}
	b.LayeredRuntime = layeredRuntime(p.runtime)
	if p.admin != nil {
		b.Admin = &bootstrapv3.Admin{Address: p.admin.proto()}
	}
	pack.check(b)
	if err := pack.err(); err != nil {
		return nil, fmt.Errorf("the policy does not make a valid Envoy configuration: %w", err)
	}
	return b, nil
}

func listeners(pack *packer, s *policy.Snapshot, p *parsed, hash string) []*listenerv3.Listener {
	list := []*listenerv3.Listener{listener(pack, s, p, hash)}
	if len(sealedTiers(s, p)) > 0 {
		list = append(list, innerListener(pack, s, p))
	}
	return list
}

func clusters(pack *packer, s *policy.Snapshot, p *parsed) []*clusterv3.Cluster {
	var list []*clusterv3.Cluster
	retried := retriedTiers(s)
	for _, t := range s.Tiers {
		if t.Model == nil {
			continue
		}
		c := upstreamCluster(pack, p, tierCluster(t.Name), t.Name, tierBreakers(t.Model))
		if percent, any := retried[t.Name]; any {
			setRetryBudget(c, percent)
		}
		list = append(list, c)
	}
	list = append(list,
		upstreamCluster(pack, p, unmatchedCluster, firstModelTier(s), openBreakers()),
		processorCluster(pack, p))
	if len(sealedTiers(s, p)) > 0 {
		hop := sealHop(pack, p)
		if percent, any := sealedRetries(s); any {
			setRetryBudget(hop, percent)
		}
		list = append(list, hop)
	}
	return list
}

func (a address) proto() *corev3.Address {
	if a.path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: a.path}}}
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       a.host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.port)},
		Ipv4Compat:    a.host == "::", // as everywhere else, [::] listens on IPv4 too
	}}}
}

// preamble is the comment above the configuration.
func preamble(s *policy.Snapshot, p *parsed, hash string) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight("# "+fmt.Sprintf(format, args...), " ") + "\n")
	}
	line("Envoy configuration written by `brownout envoy bootstrap`. Render it again rather than edit it.")
	line("")
	line("policy %s, configuration %s", orNone(s.Hash), hash)
	line("listener       %s, HTTP/1.1 and HTTP/2 in clear", p.Listen)
	for _, t := range s.Tiers {
		for _, u := range p.upstreams[t.Name] {
			line("upstream       %s", u)
		}
	}
	line("")
	if len(sealedTiers(s, p)) == 0 {
		line("Start beside it:  brownout serve --policy FILE %s --seal none", p.serveFlags())
	} else {
		line("Start beside it:  brownout serve --policy FILE %s --seal %s --inner %s", p.serveFlags(), p.Seal, p.Inner)
		if p.inner.path != "" {
			line("Make first:       %s, if brownout serve has not: Envoy makes its socket there", filepath.Dir(p.inner.path))
		}
	}
	line("Start it:         envoy -c THIS_FILE")
	line("With brownout away, each route does what its `failure` says: open goes to the route's best tier, closed answers 503.")
	return b.Bytes()
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
