package dialect

// Filler is a byte that every reader of the dialect skips at the end of a stream, for whoever must send one. The readers
// of Gemini take an empty line for a broken event; a lone carriage return is white space to all of them.
func (id ID) Filler() string {
	if id == Gemini {
		return "\r"
	}
	return "\n"
}
