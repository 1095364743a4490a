package policy

import "testing"

func TestARouteNeedsTheBodyOfWhatIsKeptRenamedOrAnsweredInItsForm(t *testing.T) {
	const tiers = "version: 1\ntiers:\n  full: {model: {concurrency: 1, queue: 1}}\n  renamed: {model: {concurrency: 1, queue: 1, rewrite: {model: m}}}\n" +
		"  moved: {model: {concurrency: 1, queue: 1, rewrite: {path: /v2, headers: {a: b}}}}\n  cached: {cache: {}}\n  canned: {template: {text: sorry}}\nroutes:\n- {name: a, match: {path: {prefix: /v1}}, "
	for rest, want := range map[string]struct{ body, kept bool }{
		"ladder: [full]}":                                                  {},
		"ladder: [full, moved]}":                                           {},
		"ladder: [full, cached]}":                                          {},
		"ladder: [full], retry: {retries: 1}}":                             {},
		"ladder: [full, renamed]}":                                         {body: true},
		"ladder: [full, canned]}":                                          {body: true},
		"ladder: [full, canned], stream: false}":                           {body: true},
		"ladder: [full, canned], stream: {dialect: gemini}}":               {},
		"ladder: [full, canned], stream: {dialect: ollama}}":               {body: true},
		"ladder: [full], cache: {}}":                                       {body: true, kept: true},
		"ladder: [full], idempotency: {}}":                                 {body: true, kept: true},
		"ladder: [full, canned], stream: {dialect: gemini}, cache: {}}":    {body: true, kept: true},
		"ladder: [full, renamed], stream: {dialect: gemini}, cache: {}}\n": {body: true, kept: true},
	} {
		s, problems := Parse("p", []byte(tiers+rest))
		if s == nil {
			t.Fatal(problems)
		}
		if got := s.NeedsBody(&s.Routes[0]); got != want.body {
			t.Errorf("%s: needs the body: %v, want %v", rest, got, want.body)
		}
		if got := s.KeepsAnswers(); got != want.kept {
			t.Errorf("%s: keeps answers: %v, want %v", rest, got, want.kept)
		}
	}
}
