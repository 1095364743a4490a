package dialect

import (
	"github.com/envoy-brownout/brownout/internal/frame"
)

// generic is an event stream of unknown dialect. Evidence of completion is an event named done or a [DONE].
type generic struct {
	tally
	done bool
}

func (*generic) ID() ID { return Generic }

// Observe takes any data for content. An error ends the stream only if nothing follows it: whether it is one, only the
// service knows, so it is not its last word either.
func (g *generic) Observe(f frame.Fields, _ []byte) Mark {
	was := g.done
	doc, m, _ := g.open(f)
	m &^= Foreign | Final
	if m&Data == 0 || beats(doc) {
		return m &^ Data
	}
	g.data = true
	g.failed, g.trouble = false, 0
	switch {
	case string(f.Name) == "done" || m&Sentinel != 0:
		g.done = true
		if g.inner(doc); g.draft {
			g.finished(nil, finishCapped)
		}
		m |= Final | g.closing()
	case len(f.Error) > 0:
		doc, _ = parse(f.Error)
		m |= g.fail(readFault(doc)) &^ Final
	case string(f.Name) == "error" || doc.get("error").set() || doc.get("object").is("error"):
		m |= g.fail(readFault(doc)) &^ Final
	default:
		m |= g.saw(true)
	}
	if g.done && !was {
		m |= Finished
	}
	return m
}

func (g *generic) State() State { return g.state(g.done) }

// AppendEnding appends the frame of the contract, whatever the mode: only that one needs no dialect.
func (g *generic) AppendEnding(dst []byte, e Ending) []byte {
	if s := g.State(); s.settled() || s.Error {
		return dst
	}
	return appendBare(dst, e)
}

// AppendLabel puts the label into the data of an event named done, or the frame of the contract in front of what takes
// no label. What is labelled from further in keeps that.
func (g *generic) AppendLabel(dst, unit []byte, l Label) []byte {
	f, _ := (frame.Event{Block: unit}).Parse(true, nil)
	if string(f.Name) == "done" {
		if out, ok, _ := labelEvent(dst, unit, l); ok {
			return out
		}
		if doc, _ := parse(f.Data); doc.get("degraded").isTrue() {
			return append(dst, unit...)
		}
	}
	return append(l.appendBare(dst), unit...)
}
