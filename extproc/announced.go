package extproc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// Names of the gRPC metadata in which Envoy's configuration announces itself
// (Envoy: ExternalProcessor.grpc_service.initial_metadata).
const (
	metaMaxWait      = "brownout-max-wait-ms"
	metaRouteTimeout = "brownout-route-timeout-ms"
	metaConfigHash   = "brownout-config-hash"
)

// announced is what Envoy said of its own configuration. Zero values: not said.
type announced struct {
	maxWait      time.Duration // longest wait for a reply it allows; our margin is taken off
	routeTimeout time.Duration
	hash         string
}

// messageMargin is what the wait in queues stays below Envoy's longest message timeout.
const messageMargin = 250 * time.Millisecond

func readAnnounced(ctx context.Context) announced {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return announced{}
	}
	a := announced{routeTimeout: millis(md, metaRouteTimeout), hash: first(md, metaConfigHash)}
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
