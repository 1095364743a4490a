package policy_test

import (
	"fmt"

	"github.com/envoy-brownout/brownout/policy"
)

func ExampleParse() {
	src := []byte(`
version: 1
tiers: {full: {model: {concurrency: 4, queue: 8}}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat}}
  ladder: [full]
`)
	snapshot, problems := policy.Parse("policy.yaml", src)
	for _, p := range problems {
		fmt.Println(p)
	}
	if snapshot == nil {
		return
	}
	route, ok := snapshot.Match("POST", "/v1/chat/completions?api-version=1")
	fmt.Println(ok, route.Name, snapshot.Tiers[route.Ladder[0].Tier].Name)
	// Output: true chat full
}

func ExampleParse_problems() {
	_, problems := policy.Parse("policy.yaml", []byte("version: 1\ntiers: {full: {model: {concurrency: 4, queu: 8}}}\nroutes: []\n"))
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// policy.yaml:2:23: error: missing field "queue" (add a whole number)
	// policy.yaml:2:40: error: unknown field "queu" (did you mean "queue"?)
	// policy.yaml:3:9: error: there is no route (give at least one, such as {name: chat, ladder: [full]})
}
