package seal

// End is how a sealed request ended.
type End uint8

// The ends.
const (
	endUnknown     End = iota
	EndWhole           // the answer went through whole, with whatever status
	EndRepaired        // the upstream's body was cut, and the cut became an end with the trailer
	EndCut             // the upstream's body was cut, and the cut was passed on
	EndUnreachable     // the upstream broke before headers: 503 with the mark
	EndClientGone      // Envoy closed the request's stream before its answer had ended
	EndCancelled       // Cancel ended it
	numEnds
)

var endNames = [numEnds]string{"unknown", "whole", "repaired", "cut", "unreachable", "client_gone", "cancelled"}

// String is the end's name in logs.
func (e End) String() string {
	if e >= numEnds {
		return endNames[endUnknown]
	}
	return endNames[e]
}
