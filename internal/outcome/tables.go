package outcome

// outcomeSamples says what each outcome teaches the limiter of the tier it ran on.
var outcomeSamples = [numOutcomes]Sample{
	ClientAborted: SampleIgnore, ShedOutcome: SampleIgnore, Deadline: SampleDrop, Evicted: SampleDrop,
	Truncated: SampleIgnore, Stalled: SampleDrop, Quota: SampleIgnore, Throttled: SampleDrop, Overloaded: SampleDrop,
	UpstreamError: SampleIgnore, BadRequest: SampleIgnore, Empty: SampleIgnore, Refusal: SampleSuccess,
	Capped: SampleSuccess, Replayed: SampleIgnore, DegradedOK: SampleSuccess, OK: SampleSuccess, Unmatched: SampleIgnore,
}

// Sample is what the outcome teaches the limiter of the tier it ran on.
func (o Outcome) Sample() Sample {
	if o < numOutcomes {
		return outcomeSamples[o]
	}
	return SampleIgnore
}

// shedRungs says under which reason a lower tier answers when a better one refused for the shed reason.
var shedRungs = [numSheds]Degraded{
	ShedNone:      DegradedUpstreamError, // the better tier was not asked: Envoy has no way to it
	ShedQueueFull: DegradedQueuePressure, ShedDeadlineExpired: DegradedDeadline, ShedInfeasible: DegradedQueuePressure,
	ShedDisplaced: DegradedQueuePressure, ShedPaused: DegradedUpstreamThrottled, ShedMemory: DegradedQueuePressure,
	ShedShuttingDown: DegradedQueuePressure,
}

// Rung is the degraded reason of an answer from a lower tier, when a better tier refused for s.
func (s Shed) Rung() Degraded {
	if s < numSheds {
		return shedRungs[s]
	}
	return DegradedQueuePressure
}

// Retryable says whether a caller may expect the same request to do better later. A request whose time was gone
// carries that with it.
func (s Shed) Retryable() bool { return s != ShedDeadlineExpired }

// ByStatus classifies an answer of which only the status is known. fromEnvoy tells that Envoy wrote it, with the
// response code details it gave (Envoy: HTTP response code details).
func ByStatus(status int, fromEnvoy bool, details string) Outcome {
	switch {
	case status < 400:
		return OK
	case fromEnvoy:
		return envoyOutcome(status, details)
	case status == 429:
		return Throttled
	case status == 503 || status == 529: // 529 is Anthropic's overloaded_error
		return Overloaded
	case status >= 500:
		return UpstreamError
	}
	return BadRequest
}

// envoyOutcome classifies Envoy's own replies. Overflow of its circuit breakers and its overload manager are
// capacity; other 5xx mean that the upstream was not reached or broke before headers.
func envoyOutcome(status int, details string) Outcome {
	switch details {
	case "overload", "overload_manager", "upstream_overflow", "upstream_reset_before_response_started{overflow}":
		return Overloaded
	}
	if status >= 500 {
		return UpstreamError
	}
	return BadRequest
}
