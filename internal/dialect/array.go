package dialect

// StreamsAsArray says whether the answer to a request of that path comes as one JSON array, piece by piece: so streams
// Gemini where the query does not ask for events (alt=sse).
func StreamsAsArray(path string) bool {
	id, ok := ByPath(path)
	return ok && id == Gemini && streamsByPath(path) && !hasSSE(path)
}
