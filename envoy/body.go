package envoy

import (
	"fmt"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-brownout/brownout/policy"
)

// largestBodyLimit keeps a body within one message to the plugin.
const largestBodyLimit = 1 << 30

func (p *parsed) parseBodyLimit() error {
	switch {
	case p.BodyLimit == 0:
		p.BodyLimit = DefaultBodyLimit
	case p.BodyLimit < 0 || p.BodyLimit > largestBodyLimit:
		return &OptionError{"body-limit", strconv.FormatInt(p.BodyLimit, 10), "out of range", fmt.Sprintf("give 1 to %d bytes", largestBodyLimit)}
	}
	return nil
}

// announcedLimit is the value of MetadataBodyLimit.
func announcedLimit(s *policy.Snapshot, p *parsed) int64 {
	for i := range s.Routes {
		if s.NeedsBody(&s.Routes[i]) {
			return p.BodyLimit
		}
	}
	return 0
}

// limitBody lets Envoy buffer a body for the plugin. The limit is the route's: raised for a connection, it would let each
// client that does not read hold as much. On all routes of one policy route, for the body is buffered under the one that
// matched before the plugin chose.
func limitBody(out *routev3.Route, s *policy.Snapshot, r *policy.Route, p *parsed) {
	if s.NeedsBody(r) {
		out.RequestBodyBufferLimit = wrapperspb.UInt64(uint64(p.BodyLimit))
	}
}
