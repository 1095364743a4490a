package envoy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/envoy-brownout/brownout/internal/testkit"
	"github.com/envoy-brownout/brownout/policy"
)

var update = flag.Bool("update", false, "rewrite testdata/*.out.yaml from testdata/*.in.yaml")

// golden is one testdata/*.in.yaml.
type golden struct {
	Listen     string   `yaml:"listen"`
	Upstreams  []string `yaml:"upstreams"`
	Processor  string   `yaml:"processor"`
	Admin      string   `yaml:"admin"`
	AccessLog  string   `yaml:"access_log"`
	UpstreamCA string   `yaml:"upstream_ca"`
	Seal       string   `yaml:"seal"`
	Inner      string   `yaml:"inner"`
	SocketMode uint32   `yaml:"socket_mode"`
	BodyLimit  int64    `yaml:"body_limit"`
	Policy     string   `yaml:"policy"`
}

// render reads an input file and renders it.
func (g golden) render(t *testing.T) []byte {
	t.Helper()
	s, problems := policy.Parse("golden", []byte(g.Policy))
	if len(problems) > 0 {
		t.Fatalf("the input's policy has problems: %v", problems)
	}
	o := Options{Listen: g.Listen, Processor: g.Processor, Admin: g.Admin, AccessLog: g.AccessLog, UpstreamCA: g.UpstreamCA,
		Seal: g.Seal, Inner: g.Inner, SocketMode: g.SocketMode, BodyLimit: g.BodyLimit}
	for _, text := range g.Upstreams {
		u, err := ParseUpstream(text)
		if err != nil {
			t.Fatal(err)
		}
		o.Upstreams = append(o.Upstreams, u)
	}
	out, err := Bootstrap(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eachGolden runs f once per input with what it renders to and where its golden is.
func eachGolden(t *testing.T, f func(t *testing.T, rendered []byte, goldenPath string)) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs in testdata: %v", err)
	}
	for _, in := range inputs {
		base := strings.TrimSuffix(in, ".in.yaml")
		t.Run(filepath.Base(base), func(t *testing.T) {
			src, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := yaml.Load(src, &g, yaml.WithKnownFields()); err != nil {
				t.Fatal(err)
			}
			f(t, g.render(t), base+".out.yaml")
		})
	}
}

func TestBootstrapRendersTheGoldens(t *testing.T) {
	eachGolden(t, func(t *testing.T, rendered []byte, path string) {
		if *update {
			if err := os.WriteFile(path, rendered, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(rendered)); d != "" {
			t.Errorf("%s differs; read the change and run `make golden` (-want +got):\n%s", path, d)
		}
	})
}

func TestBootstrapIsReadBackAndValidatedToTheLastMessage(t *testing.T) {
	eachGolden(t, func(t *testing.T, rendered []byte, _ string) {
		checked := validateDeep(t, readBack(t, rendered))
		for _, want := range []protoreflect.Name{"HttpConnectionManager", "ExternalProcessor", "Router", "HeaderMutation", "HttpProtocolOptions"} {
			if !slices.Contains(checked, want) {
				t.Errorf("no %s among the validated messages %v", want, checked)
			}
		}
	})
}

func TestARealEnvoyAcceptsTheBootstrap(t *testing.T) {
	eachGolden(t, func(t *testing.T, rendered []byte, _ string) {
		if err := testkit.ValidateEnvoy(t, "testdata", rendered); err != nil {
			t.Error(err)
		}
	})
}

func TestBootstrapIsTheSameBytesEveryTime(t *testing.T) {
	first := bootstrap(t, chatPolicy(), chatOptions())
	for range 20 {
		if !bytes.Equal(first, bootstrap(t, chatPolicy(), chatOptions())) {
			t.Fatal("two renderings of the same arguments differ")
		}
	}
}

func TestAMessageEnvoyRefusesIsAnError(t *testing.T) {
	pack := new(packer)
	pack.any(&extprocv3.ExternalProcessor{MessageTimeout: durationpb.New(-time.Second)})
	if err := pack.err(); err == nil || !strings.Contains(err.Error(), "MessageTimeout") {
		t.Errorf("error %v does not name the field", err)
	}
}

func TestASnapshotWithoutAModelTierIsAnError(t *testing.T) {
	if _, err := Bootstrap(&policy.Snapshot{}, Options{Listen: "127.0.0.1:1"}); err == nil {
		t.Error("a policy without a tier rendered something")
	}
	if h := ConfigHash(&policy.Snapshot{}); h != "" {
		t.Errorf("hash %q of a policy that cannot be rendered", h)
	}
}

func bootstrap(t *testing.T, s *policy.Snapshot, o Options) []byte {
	t.Helper()
	out, err := Bootstrap(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readBack parses rendered YAML into Envoy's own message; unknown fields fail.
func readBack(t *testing.T, rendered []byte) *bootstrapv3.Bootstrap {
	t.Helper()
	var tree any
	if err := yaml.Load(rendered, &tree); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrapv3.Bootstrap)
	if err := protojson.Unmarshal(asJSON, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// validateDeep validates m and every message packed below it, and returns the names of the packed ones.
func validateDeep(t *testing.T, m proto.Message) []protoreflect.Name {
	t.Helper()
	if err := m.(validator).ValidateAll(); err != nil {
		t.Errorf("%s: %v", m.ProtoReflect().Descriptor().Name(), err)
	}
	var names []protoreflect.Name
	eachAny(m.ProtoReflect(), func(a *anypb.Any) {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, inner.ProtoReflect().Descriptor().Name())
		names = append(names, validateDeep(t, inner)...)
	})
	return names
}

// eachAny calls f for every Any below m.
func eachAny(m protoreflect.Message, f func(*anypb.Any)) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		f(a)
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				eachAny(v.Message(), f)
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				eachAny(v.List().Get(i).Message(), f)
			}
		case !fd.IsMap() && !fd.IsList() && fd.Message() != nil:
			eachAny(v.Message(), f)
		}
		return true
	})
}
