package extproc_test

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/envoy-brownout/brownout/extproc"
	"github.com/envoy-brownout/brownout/policy"
)

// A gRPC server that is an external processor for Envoy.
func ExampleNew() {
	snapshot, problems := policy.Parse("policy.yaml", []byte(`
version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- {name: chat, ladder: [full]}
`))
	if snapshot == nil {
		fmt.Println(problems)
		return
	}
	processor := extproc.New(snapshot, extproc.Options{})
	defer processor.Close()
	server := grpc.NewServer(extproc.ServerOptions(8 << 20)...)
	defer server.Stop()
	processor.Register(server) // then: server.Serve(listener)
	for service := range server.GetServiceInfo() {
		fmt.Println(service)
	}
	// Output: envoy.service.ext_proc.v3.ExternalProcessor
}
