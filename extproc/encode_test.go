package extproc

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/session"
)

var update = flag.Bool("update", false, "rewrite testdata/replies")

// What each effect is for Envoy. Those without a file say nothing to it.
var effects = []struct {
	file   string
	effect session.Effect
}{
	{"pass_through", session.PassThrough{}},
	{"continue", session.Continue{Tier: "full", RemainingMillis: 2450}},
	{"continue_whole", session.Continue{Tier: "small", RemainingMillis: 1, CoversWhole: true}},
	{"extend_timeout", session.ExtendTimeout{For: 2700 * time.Millisecond}},
	{"answer_untouched", session.ContinueAnswer{}},
	{"answer_labelled", session.ContinueAnswer{
		Set:    []outcome.Header{{Name: "x-brownout-source", Value: "upstream"}, {Name: "x-tier", Value: "full"}, {Name: "x-degraded", Value: "false"}},
		Remove: []string{"x-degraded-reason", "retry-after"}}},
	{"answer_stripped", session.ContinueAnswer{Remove: []string{"x-tier"}}},
	{"trailers", session.ContinueTrailers{}},
	{"request_body", session.ContinueBody{Phase: session.RequestBody}},
	{"request_trailers", session.ContinueBody{Phase: session.RequestTrailers}},
	{"response_body", session.ContinueBody{Phase: session.ResponseBody}},
	{"continue_watched", session.Continue{Tier: "full", RemainingMillis: 2450, Watched: true}},
	{"continue_sealed", session.Continue{Tier: "full", RemainingMillis: 2450, Watched: true, Sealed: true}},
	{"send_body", session.SendBody{Data: []byte("data: {}\n\n")}},
	{"send_body_end", session.SendBody{Data: []byte("data: [DONE]\n\n"), End: true}},
	{"send_end", session.SendBody{End: true}},
	{"reset", session.Reset{}},
	{"", session.CancelUpstream{}}, {"", session.FinishUpstream{}},
	{"ask_body", session.AskBody{}},
	{"continue_rewritten", session.Continue{Tier: "small", RemainingMillis: 2450, Watched: true, Retry: true, Rewritten: true, Route: "chat",
		Path: "/small", Headers: []outcome.Header{{Name: "x-model-pool", Value: "small"}}}},
	{"reply_shed", session.Reply{Reply: outcome.ShedReply(outcome.ShedQueueFull, 503, 700*time.Millisecond)}},
	{"reply_shed_429", session.Reply{Reply: outcome.ShedReply(outcome.ShedQueueFull, 429, 1200*time.Millisecond)}},
	{"reply_expired", session.Reply{Reply: outcome.ShedReply(outcome.ShedDeadlineExpired, 503, 500*time.Millisecond)}},
	{"reply_deadline", session.Reply{Reply: outcome.DeadlineReply()}},
	{"", session.Offer{}}, {"", session.OfferBody{}}, {"", session.Fallback{Why: outcome.DegradedDeadline}}, {"", session.Abandon{}}, {"", session.ReleaseSlot{}}, {"", session.Finish{}}, {"", session.ProtocolError{What: "test"}},
}

func TestEveryEffectIsEncodedAsItsGoldenSays(t *testing.T) {
	for _, e := range effects {
		t.Run(strings.TrimPrefix(typeName(e.effect)+"/"+e.file, "/"), func(t *testing.T) {
			var sent []*reply
			st, _ := lone(t, narrowPolicy)
			st.out = newOutbox(func(m *reply) error { sent = append(sent, m); return nil })
			st.perform(time.Now(), e.effect)
			st.out.flush()
			switch {
			case e.file == "" && len(sent) == 0:
			case e.file == "" || len(sent) != 1:
				t.Errorf("%d messages to Envoy: %v", len(sent), sent)
			default:
				golden(t, filepath.Join("testdata", "replies", e.file+".txtpb"), sent[0])
			}
			if err := validate(sent); err != nil {
				t.Error(err)
			}
		})
	}
}

func validate(sent []*reply) error {
	for _, m := range sent {
		if err := m.ValidateAll(); err != nil {
			return err
		}
	}
	return nil
}

// golden compares got with the message in the file at path. Under -update a file that says something else is
// rewritten; prototext varies its blanks, so one that says the same is left alone.
func golden(t *testing.T, path string, got *reply) {
	t.Helper()
	want := &pb.ProcessingResponse{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = prototext.Unmarshal(text, want)
	}
	diff := cmp.Diff(want, got, protocmp.Transform())
	switch {
	case *update && (err != nil || diff != ""):
		text, err = prototext.MarshalOptions{Multiline: true}.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	case err != nil:
		t.Errorf("%v (run: go test ./extproc -update)", err)
	case diff != "":
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

// TestEveryEffectIsInTheTable keeps the table above as closed as the set of effects.
func TestEveryEffectIsInTheTable(t *testing.T) {
	have := map[string]bool{}
	for _, e := range effects {
		have[typeName(e.effect)] = true
	}
	all := receiversOf(t, filepath.Join("..", "internal", "session", "effects.go"), "effect")
	if len(all) == 0 {
		t.Fatal("no effects found")
	}
	for _, name := range all {
		if !have[name] {
			t.Errorf("effect %s is not in the table", name)
		}
	}
}

// receiversOf lists the types of a Go file that have a method of this name.
func receiversOf(t *testing.T, path, method string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != method || fn.Recv == nil {
			continue
		}
		if id, ok := fn.Recv.List[0].Type.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
	}
	return names
}

// typeName is a type's name without its package.
func typeName(v any) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(typeOf(v), "*"), ".")
	return name
}

// Envoy reads raw_value only, and adds unless told to overwrite: a caller or an upstream could plant ours.
func TestOurHeadersOverwriteAndAreRaw(t *testing.T) {
	for _, e := range effects {
		var sent []*reply
		st, _ := lone(t, narrowPolicy)
		st.out = newOutbox(func(m *reply) error { sent = append(sent, m); return nil })
		st.perform(time.Now(), e.effect)
		st.out.flush()
		for _, m := range sent {
			for _, h := range headersSet(m) {
				if h.GetHeader().GetValue() != "" || h.GetAppendAction().String() != "OVERWRITE_IF_EXISTS_OR_ADD" {
					t.Errorf("%s: header %v", e.file, h)
				}
			}
		}
	}
}
