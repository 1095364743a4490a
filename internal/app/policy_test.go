package app

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-brownout/brownout/policy"
)

const goodPolicy = "version: 1\ntiers: {full: {model: {concurrency: 4, queue: 8}}}\nroutes: [{name: chat, ladder: [full]}]\n"

// runPolicy executes one command line and returns its exit code and output.
func runPolicy(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(t.Context(), append([]string{"policy"}, args...), Stdio{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyCheckSaysWhatAGoodFileHolds(t *testing.T) {
	path := policyFile(t, goodPolicy)
	s, _ := policy.Parse(path, []byte(goodPolicy))
	code, out, errs := runPolicy(t, "", "check", path)
	if want := path + ": ok: 1 tier, 1 route, hash " + s.Hash + "\n"; code != ExitOK || out != want || errs != "" {
		t.Errorf("exit %d\nout  %q\nwant %q\nerr  %q", code, out, want, errs)
	}
}

func TestPolicyCheckReadsStandardInput(t *testing.T) {
	code, out, errs := runPolicy(t, goodPolicy, "check", "-")
	if code != ExitOK || !strings.HasPrefix(out, "<stdin>: ok: 1 tier, 1 route, hash ") || errs != "" {
		t.Errorf("exit %d, out %q, err %q", code, out, errs)
	}
}

func TestPolicyCheckExitsZeroWithWarnings(t *testing.T) {
	warned := strings.Replace(goodPolicy, "tiers: {", "tiers: {spare: {model: {concurrency: 1, queue: 0}}, ", 1)
	code, out, errs := runPolicy(t, warned, "check", "-")
	if code != ExitOK || !strings.HasPrefix(out, "<stdin>: ok: 2 tiers, 1 route") ||
		errs != "<stdin>:2:9: warning: tier \"spare\" is in no ladder (add it to one or remove it)\n" {
		t.Errorf("exit %d, out %q, err %q", code, out, errs)
	}
}

func TestPolicyCheckReportsEveryFileAndExitsTwo(t *testing.T) {
	good, bad := policyFile(t, goodPolicy), policyFile(t, strings.Replace(goodPolicy, "[full]", "[ful]", 1))
	missing := filepath.Join(t.TempDir(), "none.yaml")
	code, out, errs := runPolicy(t, "", "check", bad, missing, good)
	wantErrs := bad + ":3:32: error: there is no tier \"ful\" (did you mean \"full\"?)\n" +
		missing + ": error: open " + missing + ": no such file or directory\n"
	if code != ExitUsage || !strings.HasPrefix(out, good+": ok: ") || errs != wantErrs {
		t.Errorf("exit %d\nout  %q\nerr  %q\nwant %q", code, out, errs, wantErrs)
	}
}

func TestPolicyCheckPrintsJSONForMachines(t *testing.T) {
	code, out, errs := runPolicy(t, strings.Replace(goodPolicy, "queue: 8", "queue: -8", 1), "check", "--json", "-", policyFile(t, goodPolicy))
	var got []struct {
		File, Hash    string
		OK            bool
		Tiers, Routes int
		Problems      []struct {
			File, Severity, Message, Hint string
			Line, Col                     int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != ExitUsage || errs != "" || len(got) != 2 {
		t.Fatalf("exit %d, %v, out %q, err %q", code, err, out, errs)
	}
	bad, good := got[0], got[1]
	if bad.OK || len(bad.Problems) != 1 || bad.Problems[0].Severity != "error" || bad.Problems[0].Line != 2 || bad.Problems[0].Col != 47 {
		t.Errorf("bad file: %+v", bad)
	}
	if !good.OK || len(good.Hash) != 16 || good.Tiers != 1 || good.Routes != 1 || good.Problems == nil || len(good.Problems) != 0 {
		t.Errorf("good file: %+v", good)
	}
}

func TestPolicyCheckDoesNotReadEndlessInput(t *testing.T) {
	code, _, errs := runPolicy(t, strings.Repeat("#", 3*policy.MaxBytes), "check", "-")
	if code != ExitUsage || !strings.Contains(errs, "at most 1048576") {
		t.Errorf("exit %d, err %q", code, errs)
	}
}

func TestPolicyCheckWithoutAFileIsBadUsage(t *testing.T) {
	if code, _, errs := runPolicy(t, "", "check"); code != ExitUsage || !strings.Contains(errs, "file") {
		t.Errorf("exit %d, err %q", code, errs)
	}
}

func TestPolicySchemaPrintsTheSchema(t *testing.T) {
	code, out, errs := runPolicy(t, "", "schema")
	if code != ExitOK || out != string(policy.Schema()) || !json.Valid([]byte(out)) || errs != "" {
		t.Errorf("exit %d, out %.80q, err %q", code, out, errs)
	}
}
