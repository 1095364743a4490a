package envoy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/policy"
)

func TestConfigHashChangesWithWhatThePolicyContributes(t *testing.T) {
	changes := map[string]func(*policy.Snapshot){
		"concurrency":     func(s *policy.Snapshot) { s.Tiers[0].Model = &policy.Model{Concurrency: 5, Queue: 8} },
		"queue":           func(s *policy.Snapshot) { s.Tiers[0].Model = &policy.Model{Concurrency: 4, Queue: 9} },
		"tier name":       func(s *policy.Snapshot) { s.Tiers[1].Name = "tiny" },
		"path":            func(s *policy.Snapshot) { s.Routes[0].Match.Path.Prefix = "/v2" },
		"method":          func(s *policy.Snapshot) { s.Routes[0].Match.Methods = nil },
		"ladder":          func(s *policy.Snapshot) { s.Routes[0].Ladder = s.Routes[0].Ladder[:1] },
		"failure":         func(s *policy.Snapshot) { s.Routes[0].Failure = policy.FailClosed },
		"route order":     func(s *policy.Snapshot) { s.Routes[0], s.Routes[1] = s.Routes[1], s.Routes[0] },
		"largest budget":  func(s *policy.Snapshot) { s.Routes[1].Budget.Max = time.Minute },
		"budget header":   func(s *policy.Snapshot) { s.Budget.Header = "x-patience" },
		"seal":            func(s *policy.Snapshot) { s.Routes[0].Stream = policy.DefaultStream() },
		"retries":         func(s *policy.Snapshot) { s.Routes[0].Retries = 1 },
		"cache":           func(s *policy.Snapshot) { s.Routes[0].Cache = &policy.Cache{} },
		"cache partition": func(s *policy.Snapshot) { s.Routes[0].Cache = &policy.Cache{Partition: []string{"user-agent"}} },
		"idempotency":     func(s *policy.Snapshot) { s.Routes[1].Idempotency = &policy.Idempotency{} },
		"model's name":    func(s *policy.Snapshot) { s.Tiers[1].Model.Rewrite.Model = "llama" },
		"rewritten path":  func(s *policy.Snapshot) { s.Tiers[0].Model.Rewrite.Path = "/v2" },
		"set headers": func(s *policy.Snapshot) {
			s.Tiers[0].Model.Rewrite.Headers = []policy.Header{{Name: "a", Value: "b"}}
		},
		"template": func(s *policy.Snapshot) {
			s.Tiers = append(s.Tiers, policy.Tier{Name: "t", Template: &policy.Template{Text: "sorry"}})
			s.Routes[0].Ladder = append(s.Routes[0].Ladder, policy.Rung{Tier: 2})
		},
		"priority header": func(s *policy.Snapshot) { s.Priority.Header = "x-class" },
		"a tier of no use": func(s *policy.Snapshot) {
			s.Tiers = append(s.Tiers, policy.Tier{Name: "z", Model: &policy.Model{Concurrency: 1}})
		},
	}
	seen := map[string]string{ConfigHash(chatPolicy()): "nothing"}
	for what, change := range changes {
		s := chatPolicy()
		change(s)
		h := ConfigHash(s)
		if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(h) {
			t.Errorf("%s changed: hash %q", what, h)
		}
		if other, dup := seen[h]; dup {
			t.Errorf("changing %s gives the same hash as changing %s", what, other)
		}
		seen[h] = what
	}
}

func TestConfigHashIgnoresWhatEnvoyNeedNotKnow(t *testing.T) {
	want := ConfigHash(chatPolicy())
	for what, change := range map[string]func(*policy.Snapshot){
		"source hash":     func(s *policy.Snapshot) { s.Hash = "fedcba9876543210" },
		"priority values": func(s *policy.Snapshot) { s.Priority.Values = map[string]int{"gold": 1} },
		"default budget":  func(s *policy.Snapshot) { s.Budget.Default = time.Second },
		"stream timers":   func(s *policy.Snapshot) { s.Routes[0].Stream = policy.Stream{Watch: true, Idle: time.Second} },
		"wait_over":       func(s *policy.Snapshot) { s.Routes[0].Ladder[1] = policy.Rung{Tier: 1, HasWaitOver: true} },
		"dwell":           func(s *policy.Snapshot) { s.Routes[0].Dwell = time.Second },
		"store":           func(s *policy.Snapshot) { s.Store.Memory = 1 },
		"a tier that needs no compute": func(s *policy.Snapshot) {
			s.Tiers = append(s.Tiers, policy.Tier{Name: "c", Cache: &policy.Cached{StaleFor: time.Hour}})
			s.Routes[0].Ladder = append([]policy.Rung{{Tier: 2}}, s.Routes[0].Ladder...)
		},
		"shed status": func(s *policy.Snapshot) { s.Routes[0].ShedStatus = map[string]int{"queue_full": 429} },
	} {
		s := chatPolicy()
		change(s)
		if got := ConfigHash(s); got != want {
			t.Errorf("changing %s changes the hash from %s to %s", what, want, got)
		}
	}
}

func TestTheBootstrapAnnouncesTheHashWhateverTheAddresses(t *testing.T) {
	other := chatOptions()
	other.BodyLimit = 1
	other.Listen, other.Admin, other.AccessLog, other.Processor = "127.0.0.1:1", "", "", "10.0.0.9:1"
	other.Upstreams = append(other.Upstreams, Upstream{Tier: "full", Host: "10.0.0.2", Port: 1})
	want := "- key: " + MetadataConfigHash + "\n                  value: "
	for _, o := range []Options{chatOptions(), other} {
		_, after, ok := strings.Cut(string(bootstrap(t, chatPolicy(), o)), want)
		if !ok || !strings.HasPrefix(strings.Trim(after, `'"`), ConfigHash(chatPolicy())) {
			t.Errorf("with %+v the hash is not announced", o)
		}
	}
}
