package policy

// NeedsBody reports whether requests of r are decided about with their body: because answers are kept under a key
// made of it, because a tier of the ladder changes the model it names, or because a template has to answer in the
// form it asks for. r must be a route of s.
func (s *Snapshot) NeedsBody(r *Route) bool {
	if r.Cache != nil || r.Idempotency != nil {
		return true
	}
	for _, rung := range r.Ladder {
		t := &s.Tiers[rung.Tier]
		if t.Model != nil && t.Model.Rewrite.Model != "" {
			return true
		}
		// Gemini says in the path whether an answer is streamed, and the others in the body.
		if t.Template != nil && r.Stream.Dialect != "gemini" {
			return true
		}
	}
	return false
}

// KeepsAnswers reports whether some route keeps answers, so that a store is of use.
func (s *Snapshot) KeepsAnswers() bool {
	for i := range s.Routes {
		if s.Routes[i].Cache != nil || s.Routes[i].Idempotency != nil {
			return true
		}
	}
	return false
}
