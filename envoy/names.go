package envoy

// Names of the sealed route, between the plugin, Envoy and the seal. No caller and no upstream can set them: the front
// listener removes x-brownout-… from every request, the inner listener and the seal from every answer.
const (
	// SealHeader on a request chooses the sealed route: its value is the one announced as MetadataSeal. On an answer, with
	// the value SealUnreachable, the seal says that the upstream gave none.
	SealHeader = "x-brownout-seal"
	// SealIDHeader on a request is the session's id, a decimal number.
	SealIDHeader = "x-brownout-id"
	// InnerHeader on an answer: the inner Envoy wrote it itself; the value are the details of why.
	InnerHeader = "x-brownout-inner"
	// CutTrailer behind an answer's body, with the value 1: the upstream cut the body there.
	CutTrailer = "x-brownout-cut"
)

// RouteHeader on a request names the policy's route that took it. The plugin sets it, with the tier, where the tier's
// rewrite names a model or a path: a path it changed may no longer match the route, so Envoy goes by this name and that
// of the tier. It does not reach the upstream.
const RouteHeader = "x-brownout-route"

// How the plugin lets Envoy's router repeat a request, in the admitting reply: both headers, with these values. The
// route to a tier has pauses and a budget for it where the policy has `retries`, and without the headers it repeats
// nothing. The router consumes them. No caller can set them: the front listener removes x-envoy-retry-… from every
// request.
const (
	RetryOnHeader = "x-envoy-retry-on"
	// RetryOn: a connection that failed, a stream the upstream refused or reset before the answer's headers, and, behind
	// the seal, what SealUnreachable stands for. Nothing that has a status of the upstream's.
	RetryOn          = "connect-failure,refused-stream,reset,retriable-headers"
	MaxRetriesHeader = "x-envoy-max-retries"
	MaxRetries       = "1"
)

// Values of SealHeader.
const (
	SealOn          = "on"
	SealUnreachable = "unreachable"
)
