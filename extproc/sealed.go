package extproc

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/session"
	"github.com/envoy-brownout/brownout/policy"
)

// registry holds the ids of requests that went over the seal and are still watched.
type registry struct {
	last atomic.Uint64
	live sync.Map // id → *stream
}

// enter makes an id.
func (r *registry) enter(st *stream) string {
	id := strconv.FormatUint(r.last.Add(1), 10)
	r.live.Store(id, st)
	return id
}

func (r *registry) leave(id string) { r.live.Delete(id) }

func (r *registry) has(id string) bool { return r.find(id) != nil }

func (r *registry) find(id string) *stream {
	st, ok := r.live.Load(id)
	if !ok {
		return nil
	}
	return st.(*stream)
}

// watchOf says how a route's answers are watched; nil when they are not. sealed: Envoy's configuration has the seal.
func watchOf(p policy.Stream, sealed bool) *session.Watch {
	if !p.Watch {
		return nil
	}
	w := &session.Watch{
		Idle: p.Idle, Linger: p.Linger, FirstToken: p.FirstToken, Max: p.Max, Hold: p.HoldHeaders, Sealed: p.Seal && sealed,
		Stream: dialect.Options{EvidenceEOF: p.EvidenceEOF, Terminal: terminals[p.Terminal]},
	}
	w.Dialect, w.Pinned = dialect.ByName(p.Dialect)
	return w
}

// terminals maps the policy's word to the dialects'.
var terminals = map[policy.Terminal]dialect.Mode{
	policy.TerminalPolyglot: dialect.Polyglot, policy.TerminalBare: dialect.Bare, policy.TerminalError: dialect.Error,
}
