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

// Values of SealHeader.
const (
	SealOn          = "on"
	SealUnreachable = "unreachable"
)
