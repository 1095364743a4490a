package envoy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/policy"
)

// sealedPolicy is chatPolicy with its first route sealed.
func sealedPolicy() *policy.Snapshot {
	s := chatPolicy()
	s.Routes[0].Stream = policy.DefaultStream()
	s.Routes[1].Stream = policy.DefaultStream()
	s.Routes[1].Stream.Seal = false
	return s
}

func TestOnlyWhatThePluginSealsTakesTheSealedRoute(t *testing.T) {
	s := sealedPolicy()
	p, err := chatOptions().parse(s)
	if err != nil {
		t.Fatal(err)
	}
	list := routes(new(packer), s, p)
	for _, c := range []struct {
		path, tier, mark string
		name, cluster    string
	}{
		{"/v1/chat/completions", "full", "on", "chat/full/sealed", sealCluster},
		{"/v1/chat/completions", "small", "on", "chat/small/sealed", sealCluster},
		{"/v1/chat/completions", "full", "", "chat/full", "tier_full"},
		{"/v1/chat/completions", "full", "off", "chat/full", "tier_full"},
		{"/v1/chat/completions", "", "on", "chat", "tier_full"},
		{"/v1/chat/completions", "unknown", "on", "chat", "tier_full"},
		{"/v1/batch", "small", "on", "batch/small", "tier_small"},
		{"/elsewhere", "full", "on", unmatchedCluster, unmatchedCluster},
	} {
		got := routedSealed(list, "POST", c.path, c.tier, c.mark)
		if got.GetName() != c.name || got.GetRoute().GetCluster() != c.cluster {
			t.Errorf("%+v: route %q to %q", c, got.GetName(), got.GetRoute().GetCluster())
		}
	}
}

func TestTheInnerListenerKnowsTheTiersOfSealedRoutesAlone(t *testing.T) {
	s := sealedPolicy()
	s.Tiers = append(s.Tiers, policy.Tier{Name: "other", Model: &policy.Model{Concurrency: 1}})
	s.Routes[1].Ladder = []policy.Rung{{Tier: 2}}
	o := chatOptions()
	o.Upstreams = append(o.Upstreams, Upstream{Tier: "other", Host: "10.0.0.3", Port: 1})
	p, err := o.parse(s)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range innerRoutes(s, p).VirtualHosts[0].Routes {
		names = append(names, r.Name+" to "+r.GetRoute().GetCluster())
	}
	if d := cmp.Diff([]string{"full to tier_full", "small to tier_small"}, names); d != "" {
		t.Errorf("inner routes (-want +got):\n%s", d)
	}
}

func TestTheSealIsAnnouncedWhereItIs(t *testing.T) {
	none := chatOptions()
	none.Seal = "none"
	unwatched := sealedPolicy()
	unwatched.Routes[0].Stream = policy.Stream{Seal: true} // not watched, so the rest means nothing
	for name, c := range map[string]struct {
		s    *policy.Snapshot
		o    Options
		want bool
	}{
		"sealed":         {sealedPolicy(), chatOptions(), true},
		"by the options": {sealedPolicy(), none, false},
		"by the policy":  {unwatched, chatOptions(), false},
	} {
		out := string(bootstrap(t, c.s, c.o))
		for _, part := range []string{"- key: " + MetadataSeal + "\n", "name: " + sealCluster + "\n", "- name: inner\n", "/sealed\n"} {
			if strings.Contains(out, part) != c.want {
				t.Errorf("%s: has %q: %v, want %v", name, part, !c.want, c.want)
			}
		}
	}
}

func TestConfigHashCoversTheSealButNotWhetherThisEnvoyHasOne(t *testing.T) {
	if ConfigHash(sealedPolicy()) == ConfigHash(chatPolicy()) {
		t.Error("a sealed route does not change the hash")
	}
	o := chatOptions()
	o.Seal = "none"
	if out := string(bootstrap(t, sealedPolicy(), o)); !strings.Contains(out, ConfigHash(sealedPolicy())) {
		t.Error("an Envoy without the seal announces another hash: the plugin would take it for stale")
	}
}

func TestBadAddressesOfTheSealAreAllReported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"names":          {func(o *Options) { o.Seal, o.Inner = "seal:1", "inner:1" }, []string{"seal", "inner"}},
		"other machines": {func(o *Options) { o.Seal, o.Inner = "0.0.0.0:1", "10.0.0.1:1" }, []string{"seal", "inner"}},
		"port 0":         {func(o *Options) { o.Seal, o.Inner = "127.0.0.1:0", "[::1]:0" }, []string{"seal", "inner"}},
		"relative":       {func(o *Options) { o.Seal, o.Inner = "unix:a", "unix:b" }, []string{"seal", "inner"}},
		"the same":       {func(o *Options) { o.Seal, o.Inner = "unix:/a", "unix:/a" }, []string{"inner"}},
		"mode":           {func(o *Options) { o.SocketMode = 0o1777 }, []string{"socket-mode"}},
		"long":           {func(o *Options) { o.Inner = "unix:/" + strings.Repeat("x", 107) }, []string{"inner"}},
		"unused":         {func(o *Options) { o.Seal, o.Inner = "none", "nonsense" }, nil},
		"loopback":       {func(o *Options) { o.Seal, o.Inner = "127.0.0.1:1", "[::1]:1" }, nil},
	} {
		o := chatOptions()
		c.change(&o)
		_, err := Bootstrap(sealedPolicy(), o)
		var got []string
		for _, e := range flat(err) {
			oe, ok := errors.AsType[*OptionError](e)
			if !ok {
				t.Fatalf("%s: %v is no option's error", name, e)
			}
			got = append(got, oe.Option)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: options with problems (-want +got):\n%s\n%v", name, d, err)
		}
	}
}

// flat lists what errors.Join joined, however deep.
func flat(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flat(e)...)
	}
	return all
}

func TestAWordYAML11ReadsAsABooleanIsQuoted(t *testing.T) {
	s := chatPolicy()
	s.Tiers[0].Name = "no"
	o := chatOptions()
	o.Upstreams[0].Tier = "no"
	if out := string(bootstrap(t, s, o)); !strings.Contains(out, "exact: 'no'\n") {
		t.Error("the tier no is not quoted")
	}
}
