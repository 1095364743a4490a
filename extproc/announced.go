package extproc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/envoy-brownout/brownout/envoy"
)

// Names of the metadata, as the generated configuration sends it.
const (
	metaMaxWait      = envoy.MetadataMaxWait
	metaRouteTimeout = envoy.MetadataRouteTimeout
	metaConfigHash   = envoy.MetadataConfigHash
	metaRoutes       = envoy.MetadataRoutes
	metaSeal         = "brownout-seal"
)

// announced is what Envoy said of its own configuration in the stream's metadata
// (Envoy: ExternalProcessor.grpc_service.initial_metadata). Zero values: not said.
type announced struct {
	maxWait      time.Duration // longest wait for a reply it allows; our margin is taken off
	routeTimeout time.Duration
	hash         string
	routes       string          // ROUTE/TIER pairs, comma separated
	known        map[string]bool // routes, read; nil: all of the policy's
	seal         string          // what its route over the seal matches; "": it has none
}

// messageMargin is what the wait in queues stays below Envoy's longest message timeout.
const messageMargin = 250 * time.Millisecond

func readAnnounced(ctx context.Context) announced {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return announced{}
	}
	a := announced{routeTimeout: millis(md, metaRouteTimeout), hash: first(md, metaConfigHash), routes: first(md, metaRoutes), seal: first(md, metaSeal)}
	if w := millis(md, metaMaxWait); w > 0 {
		a.maxWait = max(time.Millisecond, w-messageMargin)
	}
	return a
}

func first(md metadata.MD, key string) string {
	if v := md[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func millis(md metadata.MD, key string) time.Duration {
	n, err := strconv.ParseInt(first(md, key), 10, 64)
	if err != nil || n < 0 || n > int64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}
