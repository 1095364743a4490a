package frame

import "bytes"

// Fields are what an event says (WHATWG HTML §9.2.6). Slices point into the event's block, or into scratch when
// several data lines had to be joined.
type Fields struct {
	Name    []byte // of the last event field; empty: "message"
	Data    []byte // data lines joined by LF; undecoded
	HasData bool   // at least one data field; without one nothing is dispatched
	// Error is the value of a field named error, which llama.cpp sends instead of a data field
	// (ggml-org/llama.cpp#16104).
	Error []byte
	// Bare is the first line that is no field known to us and no comment: a body that is not framed at all.
	Bare []byte
}

var bom = []byte("\xEF\xBB\xBF")

// Parse reads the fields of an event. first says that the event is the stream's first, where a byte order mark may
// stand. scratch is used when data lines must be joined, and returned grown.
func (e Event) Parse(first bool, scratch []byte) (Fields, []byte) {
	var f Fields
	joined := scratch[:0]
	rest := e.Block
	if first {
		rest = bytes.TrimPrefix(rest, bom)
	}
	lines := 0
	for len(rest) > 0 {
		end := lineEnd(rest)
		line := rest
		if end >= 0 {
			line, rest = rest[:end], after(rest, end)
		} else {
			rest = nil
		}
		name, value := cutField(line)
		switch string(name) {
		case "data":
			lines++
			switch lines {
			case 1:
				f.Data, f.HasData = value, true
			case 2:
				joined = append(append(append(joined, f.Data...), '\n'), value...)
			default:
				joined = append(append(joined, '\n'), value...)
			}
		case "event":
			f.Name = value
		case "error":
			f.Error = value
		case "", "id", "retry":
		default:
			if f.Bare == nil {
				f.Bare = line
			}
		}
	}
	if lines > 1 {
		f.Data = joined
	}
	return f, joined
}

// after is what follows the line end at i.
func after(p []byte, i int) []byte {
	if p[i] == '\r' && i+1 < len(p) && p[i+1] == '\n' {
		i++
	}
	return p[i+1:]
}

// cutField splits a line at its first colon and drops one space behind it. A comment has an empty name.
func cutField(line []byte) (name, value []byte) {
	i := bytes.IndexByte(line, ':')
	if i < 0 {
		return line, nil
	}
	name, value = line[:i], line[i+1:]
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return name, value
}
