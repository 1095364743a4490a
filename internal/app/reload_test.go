package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/policy"
)

// configMap is a directory as Kubernetes mounts a ConfigMap: policy.yaml is a link into ..data, which is a link to a
// directory that a new version replaces in one rename.
type configMap struct {
	t   *testing.T
	dir string
	n   int
}

func newConfigMap(t *testing.T, text string) *configMap {
	t.Helper()
	m := &configMap{t: t, dir: t.TempDir()}
	m.swap(text)
	if err := os.Symlink(filepath.Join("..data", "policy.yaml"), m.path()); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *configMap) path() string { return filepath.Join(m.dir, "policy.yaml") }

func (m *configMap) swap(text string) {
	m.t.Helper()
	m.n++
	version := "..v" + strings.Repeat("i", m.n)
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(m.dir, version), 0o700))
	must(os.WriteFile(filepath.Join(m.dir, version, "policy.yaml"), []byte(text), 0o600))
	must(os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
}

func hashOf(t *testing.T, text string) string {
	t.Helper()
	s, problems := policy.Parse("policy.yaml", []byte(text))
	if s == nil {
		t.Fatal(problems)
	}
	return s.Hash
}

// patient is narrow for requests that wait longer than a busy machine takes to reload.
var patient = strings.Replace(narrow, "version: 1\n", "version: 1\nbudget: {default: 1m, max: 1m}\n", 1)

func TestAChangedPolicyComesIntoForceAndABadOneDoesNot(t *testing.T) {
	m := newConfigMap(t, patient)
	s := startServeAt(t, m.path())
	before := s.metric("brownout_config_last_reload_success_timestamp_seconds")
	if age := time.Since(time.UnixMilli(int64(before * 1000))); age < 0 || age > time.Minute {
		t.Errorf("the first load was %s ago", age)
	}
	conn := s.dial()
	running := open(t, conn)
	running.request()
	running.expect("continue full")

	wider := strings.Replace(patient, "concurrency: 1, queue: 1", "concurrency: 5, queue: 7", 1)
	m.swap(wider)
	eventually(t, "the wider policy is in force", func() bool { return s.state().PolicyHash == hashOf(t, wider) })
	eventually(t, "it is counted", func() bool { return s.metric(`brownout_config_reloads_total{result="success"}`) == 2 })
	if got := s.metric(`brownout_limit{tier="full"}`); got != 5 {
		t.Errorf("limit %g, want 5", got)
	}
	after := s.metric("brownout_config_last_reload_success_timestamp_seconds")
	if after < before {
		t.Errorf("last success at %f, before it at %f", after, before)
	}

	m.swap(strings.Replace(patient, "[full]", "[ful]", 1))
	eventually(t, "the bad policy is counted", func() bool { return s.metric(`brownout_config_reloads_total{result="error"}`) == 1 })
	if got := s.state(); got.PolicyHash != hashOf(t, wider) || got.Tiers[0].Limit != 5 {
		t.Errorf("in force after a bad policy: %+v", got)
	}
	if got := s.metric("brownout_config_last_reload_success_timestamp_seconds"); got != after {
		t.Errorf("last success at %f, want it unchanged at %f", got, after)
	}
	if log := s.log.String(); !strings.Contains(log, `there is no tier \"ful\" (did you mean \"full\"?)`) || !strings.Contains(log, "the one in force stays") {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
	next := open(t, conn)
	next.request()
	next.expect("continue full")
	next.finish()
	running.finish() // it arrived under the first policy

	renamed := strings.ReplaceAll(patient, "full", "large")
	m.swap(renamed)
	eventually(t, "a good policy is in force again", func() bool { return s.state().PolicyHash == hashOf(t, renamed) })
	last := open(t, conn)
	last.request()
	last.expect("continue large")
	last.finish()
	if got := s.metric(`brownout_limit{tier="full"}`); got != -1 {
		t.Errorf("the tier that is gone still has a limit of %g", got)
	}
}
