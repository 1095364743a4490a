package envoy_test

import (
	"fmt"
	"strings"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/policy"
)

func ExampleBootstrap() {
	s, problems := policy.Parse("policy.yaml", []byte(`
version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
`))
	if s == nil {
		fmt.Println(problems)
		return
	}
	full, err := envoy.ParseUpstream("full=http://127.0.0.1:8787")
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := envoy.Bootstrap(s, envoy.Options{Listen: "127.0.0.1:8080", Upstreams: []envoy.Upstream{full}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "name: tier_") || strings.Contains(line, "max_requests: 24") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// - name: tier_full
	// cluster_name: tier_full
	// max_requests: 24
}
