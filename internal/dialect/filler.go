package dialect

// Filler is a byte that every reader of the dialect skips at the end of a stream, for whoever must send one. The readers
// of Gemini take an empty line for a broken event; a lone carriage return is white space to all of them.
func (id ID) Filler() string {
	if id == Gemini {
		return "\r"
	}
	return "\n"
}

// KeepsLineEnds says whether what is put behind a stream must have its line ends. A reader of Gemini that finds an event
// ended by LFs takes all in front of it that ended otherwise for part of it (googleapis/go-genai).
func (id ID) KeepsLineEnds() bool { return id == Gemini }
