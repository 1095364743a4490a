package envoy

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// validator is what Envoy's generated messages implement.
type validator interface{ ValidateAll() error }

// packer packs messages into Any and keeps the errors, so that building a tree reads as one expression. A parent's
// ValidateAll does not look into an Any: each message is checked here, on its way in.
type packer struct{ errs []error }

func (p *packer) any(m proto.Message) *anypb.Any {
	p.check(m)
	a := new(anypb.Any)
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		p.errs = append(p.errs, fmt.Errorf("packing %s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return a
}

func (p *packer) check(m proto.Message) {
	if v, ok := m.(validator); ok {
		if err := v.ValidateAll(); err != nil {
			p.errs = append(p.errs, fmt.Errorf("invalid %s: %w", m.ProtoReflect().Descriptor().FullName(), err))
		}
	}
}

func (p *packer) err() error { return errors.Join(p.errs...) }

// toYAML renders m with Envoy's field names in the order of the protos. The output depends on m alone.
func toYAML(m proto.Message) ([]byte, error) {
	asJSON, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	var tree yaml.Node // JSON is YAML in flow style: the node tree keeps the order of the fields
	if err := yaml.Load(asJSON, &tree); err != nil {
		return nil, fmt.Errorf("reading back %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	blockStyle(&tree)
	return yaml.Dump(&tree, yaml.WithIndent(2), yaml.WithLineWidth(-1))
}

// isOldBool reports whether s is a boolean to YAML 1.1, which Envoy reads, and a string to YAML 1.2, which is written here.
func isOldBool(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
}

// blockStyle drops JSON's braces; its quotes stay where a bare word would be read as another type. Empty
// containers keep their braces, for they have no block form.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && isOldBool(n.Value) {
		n.Style = yaml.SingleQuotedStyle
	}
	if len(n.Content) == 0 && (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}
