package app

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/envoy-brownout/brownout/internal/engine"
)

// labelWidth is the width of the first column.
const labelWidth = 13

// explainPage is an explanation for people: a column of labels, and beside each one or more lines.
type explainPage struct{ b strings.Builder }

// say writes a line; an empty label goes on with the one before.
func (p *explainPage) say(label, format string, args ...any) {
	fmt.Fprintf(&p.b, "%-*s%s\n", labelWidth, label, fmt.Sprintf(format, args...))
}

// explainText is the explanation for people.
func explainText(d explained) string {
	var p explainPage
	host := ""
	if d.Request.Host != "" {
		host = " on " + shown(d.Request.Host)
	}
	p.say("request", "%s %s%s", shown(d.Request.Method), shown(d.Request.Path), host)
	p.process(d)
	p.route(d)
	if !d.Matched {
		return p.b.String()
	}
	p.budget(d.Budget)
	for i, g := range d.Ignored {
		value := ""
		if g.Value != "" {
			value = " " + strconv.Quote(cut(g.Value))
		}
		p.say([]string{"ignored", ""}[min(i, 1)], "%s%s: %s", g.Header, value, g.Why)
	}
	p.priority(d.Priority)
	p.body(d.Body)
	p.dialect(d.Dialect)
	p.ladder(d)
	p.cache(d)
	p.idempotency(d.Idempotency)
	p.now(d.Now)
	return p.b.String()
}

func (p *explainPage) process(d explained) {
	switch a := d.Process; {
	case a.Admin == "":
		p.say("process", "idle (--admin URL asks a running one)")
	case a.SamePolicy:
		p.say("process", "%s, as busy as it is", a.Admin)
	default:
		p.say("process", "%s, as busy as it is, but under this file: its policy is another one, %s", a.Admin, shown(a.PolicyHash))
	}
}

func (p *explainPage) route(d explained) {
	label := "route"
	if d.Matched {
		p.say(label, "%s", d.Route)
	} else {
		p.say(label, "none: the request passes untouched, without slots, deadlines or labels")
	}
	for _, r := range d.Passed {
		why := "neither method nor path matches"
		switch {
		case r.Path:
			why = "the method does not match"
		case r.Method:
			why = "the path does not match"
		}
		p.say("", "not %s: %s", r.Route, why)
	}
}

// covered are what a budget bounds.
func covered(covers string) string {
	if covers == "whole" {
		return "the whole answer"
	}
	return "a stream until its first content, any other answer whole"
}

func (p *explainPage) budget(b *engine.BudgetWhy) {
	from := "by " + b.From
	switch b.From {
	case "default":
		from = "by the policy's default"
	case "max":
		from = "the most the policy allows"
	}
	p.say("budget", "%s, %s: %s", b.Value, from, covered(b.Covers))
	if b.Expired {
		p.say("", "that is gone on arrival")
		return
	}
	p.say("", "%s of it is kept back to answer in: without an answer it ends %s after its arrival", b.Reserve, b.KillAt)
	if b.EndAt > b.KillAt {
		p.say("", "a stream that has begun ends after %s", b.EndAt)
	}
	for _, s := range b.Stated {
		if s.Header != b.From || s.Value != b.Value {
			p.say("", "%s says %s, %s", s.Header, s.Value, covered(s.Covers))
		}
	}
}

func (p *explainPage) priority(w *engine.PriorityWhy) {
	why := "no value of " + w.Header + " that counts"
	if w.Stated {
		why = "by " + w.Header
	}
	p.say("priority", "%d, class %s: %s", w.Value, shown(w.Class), why)
}

// bodyNeed is why a body is read.
func bodyNeed(code string) string {
	switch code {
	case "cache":
		return "the cache key"
	case "idempotency":
		return "idempotency keys"
	case "model":
		return "the model, which a tier replaces"
	case "template":
		return "the stream flag, by which a template answers"
	}
	return code
}

func (p *explainPage) body(b *engine.BodyWhy) {
	if !b.Needed {
		p.say("body", "not read: nothing on this route needs it")
		return
	}
	var why []string
	for _, code := range b.Because {
		why = append(why, bodyNeed(code))
	}
	p.say("body", "read before the decision, for %s", words(why, "and"))
	switch {
	case !b.Came:
		p.say("", "there is none here; if the request has one, give it with --body FILE")
	case b.Encoded:
		p.say("", "%s, but encoded: nothing in it is read", count(b.Bytes, "byte"))
	case !b.Object:
		p.say("", "%s, but no JSON object that has every member once", count(b.Bytes, "byte"))
	default:
		p.say("", "%s, a JSON object", count(b.Bytes, "byte"))
	}
}

func (p *explainPage) dialect(d *engine.DialectWhy) {
	by, answer, model := "by its path", "the answer is no stream", ""
	if d.Pinned {
		by = "by the policy"
	}
	switch {
	case d.Stream:
		answer = "the answer is a stream"
	case !d.Known:
		answer = "whether the answer is a stream is not known without the body"
	}
	if d.Model != "" {
		model = ", model " + shown(d.Model)
	}
	p.say("dialect", "%s, %s; %s%s", d.Name, by, answer, model)
}

// shown is a name on one line: quoted if that takes quotes, and cut when long.
func shown(s string) string {
	s = cut(s)
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		return strconv.Quote(s)
	}
	return s
}

// maxShown bounds a name or a value, in characters.
const maxShown = 200

func cut(s string) string {
	if r := []rune(s); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return s
}

func (p *explainPage) now(w *engine.DecisionWhy) {
	degraded := ""
	if w.Reason != "" && w.Kind != "shed" {
		degraded = ", labelled degraded: " + w.Reason
	}
	switch w.Kind {
	case "admitted":
		p.say("now", "goes to %s at once%s", w.Tier, degraded)
	case "waits":
		p.say("now", "waits for a slot of %s, up to %s", w.Tier, w.UpTo)
	case "answered":
		if w.Status >= 400 {
			p.say("now", "is answered %d at once: %s", w.Status, w.Reason)
			return
		}
		p.say("now", "is answered by %s%s", w.Tier, degraded)
	case "shed":
		by := ""
		if w.Tier != "" {
			by = " by " + w.Tier
		}
		p.say("now", "is answered %d: %s%s", w.Status, w.Reason, by)
	}
	if w.Fallback {
		p.say("", "should that answer fail, a lower tier that needs no compute may stand in")
	}
}

func quotedList(names []string) string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = shown(out[i])
	}
	return words(out, "and")
}
