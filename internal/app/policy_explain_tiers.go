package app

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-brownout/brownout/internal/engine"
)

// ladder writes the tiers in order, and what each would do if the request came to it now.
func (p *explainPage) ladder(d explained) {
	label := "ladder"
	for i, r := range d.Ladder {
		p.say(label, "%d. %s: %s", i+1, r.Tier, does(r))
		label = ""
		if r.Does == engine.NotAccepted {
			continue
		}
		var notes []string
		if r.WaitOver != nil && i > 0 {
			notes = append(notes, fmt.Sprintf("taken if the wait in the tier above would be over %s", r.WaitOver))
		}
		if r.Low {
			notes = append(notes, "kept to at present: who finds no slot above comes here without waiting")
		}
		if r.Kind == "model" {
			notes = append(notes, modelNotes(r, d.Body.Came)...)
		}
		switch {
		case !r.Degraded || r.Does == engine.DoesNothing:
		case r.Kind == "cache":
			notes = append(notes, "labelled degraded, unless it is a fresh answer of the first tier")
		default:
			notes = append(notes, "labelled degraded")
		}
		for _, n := range notes {
			p.say("", "   %s", n)
		}
	}
}

// does is what a tier would do, as a sentence.
func does(r engine.RungWhy) string {
	switch r.Does {
	case engine.NotAccepted:
		return "not accepted, by x-degrade"
	case engine.DoesAdmit:
		return "a slot at once" + slots(r.Model)
	case engine.DoesPark:
		return fmt.Sprintf("waits up to %s%s", r.Model.WaitUpTo, slots(r.Model))
	case engine.DoesRefuse:
		return "refuses, " + r.Why + slots(r.Model)
	case engine.DoesLookUp:
		if r.StaleFor > 0 {
			return fmt.Sprintf("answers if an answer is kept, fresh or up to %s past that", r.StaleFor)
		}
		return "answers if a fresh answer is kept"
	case engine.DoesNothing:
		if r.Why == "no_cache" {
			return "nothing: the request says no-cache"
		}
		return "nothing: the request has no cache key"
	}
	if r.Stream {
		return "answers with its text, as a stream"
	}
	return "answers with its text"
}

func slots(m *engine.ModelWhy) string {
	return fmt.Sprintf(" (%d of %d slots, %d of %d places to wait)", m.InFlight, m.Limit, m.Waiting, m.Queue)
}

// modelNotes are what else there is to say of a tier that computes.
func modelNotes(r engine.RungWhy, bodyCame bool) []string {
	var out []string
	if r.Kept {
		out = append(out, "an answer of it that is kept comes first, and takes no slot")
	}
	if r.Does == engine.DoesPark || r.Why == "queue_full" {
		if r.Model.Known {
			out = append(out, fmt.Sprintf("a wait of %s is expected", r.Model.Forecast))
		} else {
			out = append(out, "no wait is forecast: none of its requests has been served yet")
		}
	}
	if w := r.Rewrite; w != nil {
		out = append(out, rewriteNotes(w, bodyCame)...)
	}
	if r.Why == "deadline_expired" {
		return out
	}
	return append(out, retryNote(r.Retry))
}

func rewriteNotes(w *engine.RewriteWhy, bodyCame bool) []string {
	var out []string
	if w.Path != "" {
		out = append(out, "path becomes "+shown(w.Path))
	}
	switch {
	case w.To == "":
	case w.Kept && !bodyCame:
		out = append(out, "model becomes "+shown(w.To)+", in a body that is not here")
	case w.Kept:
		out = append(out, "model stays: there is no place for "+shown(w.To)+" in this request")
	case w.From == "":
		out = append(out, "model becomes "+shown(w.To))
	case w.From != w.To:
		out = append(out, "model "+shown(w.From)+" becomes "+shown(w.To))
	}
	if len(w.Headers) > 0 {
		out = append(out, "sets "+words(w.Headers, "and"))
	}
	return out
}

func retryNote(w *engine.RetryWhy) string {
	switch w.Why {
	case "":
		return "Envoy may repeat it once if the connection breaks before an answer"
	case "policy":
		return "Envoy does not repeat it: the route has no retry"
	case "caller":
		return "Envoy does not repeat it: its caller already does (x-stainless-retry-count)"
	case "time":
		return "Envoy does not repeat it: too little time is left"
	}
	return "Envoy does not repeat it: the retry budget is spent"
}

// unkept is why an answer is not kept, as a sentence.
func unkept(code string, b *engine.BodyWhy) string {
	switch code {
	case "body":
		switch {
		case !b.Came:
			return "there is no body"
		case b.Encoded:
			return "the body is encoded"
		}
		return "the body is no JSON object that has every member once"
	case "store":
		return "store is true: the request leaves something behind"
	case "previous_response_id", "conversation":
		return "it continues what lies at the server (" + code + ")"
	case "background":
		return "background is true"
	case "server_tools":
		return "it lets the server act (tools)"
	case "temperature":
		return "temperature is above 0, and cache.sampled is not set"
	case "method":
		return "its method is neither GET nor POST"
	case "multipart":
		return "its body is multipart"
	case "no_store":
		return "it says cache-control: no-store"
	case "anonymous":
		return "it has no credential, and cache.anonymous is not share"
	}
	return code
}

func (p *explainPage) cache(d explained) {
	c := d.Cache
	if c == nil {
		p.say("cache", "none: the route keeps no answers")
		return
	}
	if !c.Kept {
		var why []string
		for _, code := range c.Why {
			why = append(why, unkept(code, d.Body))
		}
		p.say("cache", "neither kept nor answered from what is kept: %s", strings.Join(why, "; "))
		return
	}
	stale := ""
	if c.StaleFor > 0 {
		stale = fmt.Sprintf(", and %s more to be given as stale", c.StaleFor)
	}
	p.say("cache", "a whole good answer is kept for %s%s", c.Fresh, stale)
	if c.Bypass {
		p.say("", "what is kept is not given to it: it says no-cache")
	}
	tenant := "nobody: callers without credentials share answers"
	if len(c.Tenant) > 0 {
		tenant = "by " + quotedList(c.Tenant)
	}
	p.say("", "tenant      %s", tenant)
	if len(c.Partition)+len(c.Absent) > 0 {
		p.say("", "partition   %s", partition(c))
	}
	p.say("", "request     method, host and path with its query; route and tier")
	if len(c.Headers) > 0 {
		p.say("", "headers     %s", words(c.Headers, "and"))
	}
	if c.Schema != "" {
		p.say("", "schema      %s", shown(c.Schema))
	}
	p.say("", "body        %s%s", normalized(c.Normalize), ignoredMembers(c.Ignored))
}

func partition(c *engine.CacheWhy) string {
	var parts []string
	if len(c.Partition) > 0 {
		parts = append(parts, words(c.Partition, "and"))
	}
	if len(c.Absent) > 0 {
		parts = append(parts, words(c.Absent, "and")+" (absent)")
	}
	return strings.Join(parts, ", ")
}

func normalized(how string) string {
	if how == "exact" {
		return "exact, but for the order of members and white space between them"
	}
	return "white space of prompts collapsed"
}

func ignoredMembers(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", without " + quotedList(names)
}

func (p *explainPage) idempotency(w *engine.IdempotencyWhy) {
	if w == nil {
		p.say("idempotency", "none: the route reads no keys")
		return
	}
	switch w.State {
	case "absent":
		p.say("idempotency", "no %s", w.Header)
	case "malformed":
		p.say("idempotency", "%s is malformed: %s", w.Header, w.Why)
	default:
		p.say("idempotency", "%s is valid, %s characters; its answer is repeated for %s to the same tenant, route, method and path",
			w.Header, strconv.Itoa(w.Length), w.TTL)
	}
}
