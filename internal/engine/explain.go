package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/dialect"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// Case is a request to explain, and the process it meets.
type Case struct {
	Request Request // Dialect, More and Length are set by Explain
	Body    []byte  // nil: none came
	State   State   // how busy the process is, as Dump tells it; a tier that is not in it is idle
}

// Explanation says what the engine makes of a request, and why. It holds names and figures, and no value of a credential,
// a query or an idempotency key.
type Explanation struct {
	Request     AskedFor        `json:"request"`
	Matched     bool            `json:"matched"`
	Route       string          `json:"route,omitempty"`
	Passed      []PassedRoute   `json:"passed_routes"` // the routes before it, or all
	Budget      *BudgetWhy      `json:"budget,omitempty"`
	Ignored     []IgnoredHeader `json:"ignored_headers,omitempty"`
	Priority    *PriorityWhy    `json:"priority,omitempty"`
	Body        *BodyWhy        `json:"body,omitempty"`
	Dialect     *DialectWhy     `json:"dialect,omitempty"`
	Ladder      []RungWhy       `json:"ladder,omitempty"`
	Cache       *CacheWhy       `json:"cache,omitempty"`
	Idempotency *IdempotencyWhy `json:"idempotency,omitempty"`
	Now         *DecisionWhy    `json:"now,omitempty"`
}

// AskedFor is the request line. Of the query there are only names.
type AskedFor struct {
	Method string `json:"method"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path"`
}

// PassedRoute is a route that does not match.
type PassedRoute struct {
	Route  string `json:"route"`
	Method bool   `json:"method_matches"`
	Path   bool   `json:"path_matches"`
}

// PriorityWhy is the class of a request.
type PriorityWhy struct {
	Class  string `json:"class"`
	Value  int    `json:"value"`
	Header string `json:"header"` // where it is stated
	Stated bool   `json:"stated"` // …and believed
}

// BodyWhy says whether the body is read before the decision.
type BodyWhy struct {
	Needed  bool     `json:"needed"`
	Because []string `json:"because"` // cache, idempotency, model, template
	Came    bool     `json:"came"`
	Bytes   int      `json:"bytes"`
	Encoded bool     `json:"encoded"` // so nothing in it is read
	Object  bool     `json:"json_object"`
}

// DialectWhy is the wire format of the answer, as far as the request tells it.
type DialectWhy struct {
	Name   string `json:"name"`
	Pinned bool   `json:"pinned"` // by the policy; else the path tells it
	Stream bool   `json:"stream"`
	Known  bool   `json:"stream_known"` // false: that is in a body which is not read
	Model  string `json:"model,omitempty"`
}

// DecisionWhy is what the request gets now.
type DecisionWhy struct {
	Kind     string `json:"kind"` // admitted, waits, answered or shed
	Tier     string `json:"tier,omitempty"`
	Status   int    `json:"status,omitempty"`   // of an answer of ours
	Reason   string `json:"reason,omitempty"`   // of a shed, or why the answer is labelled degraded
	UpTo     Millis `json:"up_to_ms,omitempty"` // of a wait
	Fallback bool   `json:"fallback"`           // a tier that needs no compute may stand in for a failed answer
}

// Millis is a duration that JSON has in milliseconds.
type Millis time.Duration

// String is like time.Duration's, without units at its end that are 0.
func (m Millis) String() string {
	s := time.Duration(m).String()
	for _, unit := range [...]string{"m0s", "h0m"} {
		if strings.HasSuffix(s, unit) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// MarshalJSON writes a number of milliseconds.
func (m Millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(m) / float64(time.Millisecond))
}

// Explain says what a process under policy s makes of a request at now. It decides in an engine of its own, whose limiters
// are as busy as the case says, and whose store and retry budget are fresh.
func Explain(now time.Time, s *policy.Snapshot, c Case) Explanation {
	r := c.Request
	r.Dialect, _ = dialect.ByPath(r.Path)
	r.More, r.Length = len(c.Body) > 0, int64(len(c.Body))
	host := r.Host[strings.LastIndexByte(r.Host, '@')+1:] // without a user's name and password
	out := Explanation{Request: AskedFor{r.Method, host, withoutValues(r.Path)}}
	a := rehearse(now, s, c.State).admission(now, r, nil)
	out.Matched = a != nil
	out.Passed = passedRoutes(s, r, a)
	if a == nil {
		return out
	}
	out.Route = a.route.Name
	out.Budget, out.Ignored = explainBudget(now, a), explainIgnored(a)
	out.Priority = &PriorityWhy{a.wishes.class, a.wishes.priority, s.Priority.Header, a.wishes.class != ClassDefault}
	h := a.readHints()
	body := c.Body
	if !a.route.needsBody(a.req.Dialect) {
		body = nil
	}
	body = a.readFacts(h, body)
	out.Body = explainBody(a, h, len(c.Body))
	out.Dialect = &DialectWhy{a.req.Dialect.String(), a.route.pinned != nil, a.facts.Stream,
		a.facts.Stream || a.facts.Object || a.req.Dialect == dialect.Gemini, a.facts.Model}
	out.Cache, out.Idempotency = explainCache(a, h, body), explainIdempotency(a, h)
	a.keyed = out.Cache != nil && out.Cache.Kept
	rungs := a.route.rungs(s) // before they are asked, which moves them
	for rung := range a.route.Ladder {
		why := explainRung(now, a, rung)
		why.Low = slices.ContainsFunc(rungs, func(r RungState) bool { return r.Tier == why.Tier && r.Low })
		out.Ladder = append(out.Ladder, why)
	}
	out.Now = decide(now, rehearse(now, s, c.State), r, c.Body)
	return out
}

// passedRoutes are the routes before the one of a, all of them where there is none, with what of each matches.
func passedRoutes(s *policy.Snapshot, r Request, a *Admission) []PassedRoute {
	out := []PassedRoute{}
	matches := func(m policy.Match) bool {
		_, ok := (&policy.Snapshot{Routes: []policy.Route{{Match: m}}}).Match(r.Method, r.Path)
		return ok
	}
	for i := range s.Routes {
		rt := &s.Routes[i]
		if a != nil && rt == a.route.Route {
			break
		}
		out = append(out, PassedRoute{rt.Name, matches(policy.Match{Methods: rt.Match.Methods}), matches(policy.Match{Path: rt.Match.Path})})
	}
	return out
}

func explainBody(a *Admission, h hints, bytes int) *BodyWhy {
	n := a.route.bodyNeeds(a.req.Dialect)
	out := &BodyWhy{Needed: n != 0, Because: []string{}, Came: bytes > 0, Bytes: bytes, Encoded: h.encoded, Object: a.facts.Object}
	for _, need := range [...]struct {
		bit  bodyNeeds
		name string
	}{{needCache, "cache"}, {needIdempotency, "idempotency"}, {needModel, "model"}, {needTemplate, "template"}} {
		if n&need.bit != 0 {
			out.Because = append(out.Because, need.name)
		}
	}
	return out
}

// decide offers the request as a driver does.
func decide(now time.Time, e *Engine, r Request, body []byte) *DecisionWhy {
	v, a := e.Offer(now, r, func(Verdict) {})
	if v.Kind == NeedBody {
		v = a.Body(now, body)
	}
	out := &DecisionWhy{Tier: v.Tier, Fallback: v.Fallback}
	switch v.Kind {
	case Admitted:
		out.Kind, out.Reason = "admitted", v.Reason.String()
	case Parked, Looking:
		out.Kind, out.Tier, out.UpTo = "waits", a.tier(a.rung), Millis(v.WakeAt.Sub(now))
	case Answered:
		out.Kind, out.Status, out.Reason = "answered", v.Reply.Status, v.Reason.String()
		if v.Outcome == outcome.BadRequest {
			out.Reason = v.Outcome.String()
		}
	case Shed:
		out.Kind, out.Status, out.Reason, out.Tier = "shed", v.ShedStatus, v.Shed.String(), v.ShedTier
	}
	return out
}
