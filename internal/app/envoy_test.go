package app

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

const onePolicy = `version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
`

// bootstrapCommand runs `brownout envoy bootstrap` with a policy on standard input.
func bootstrapCommand(t *testing.T, policy string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	args = append([]string{"envoy", "bootstrap", "--policy", "-"}, args...)
	code = Main(t.Context(), args, Stdio{In: strings.NewReader(policy), Out: &out, Err: &err})
	return code, out.String(), err.String()
}

func TestEnvoyBootstrapPrintsAConfiguration(t *testing.T) {
	code, out, errs := bootstrapCommand(t, onePolicy, "--listen", "127.0.0.1:8080",
		"--upstream", "full=http://127.0.0.1:8787", "--upstream", "full=http://127.0.0.1:8788")
	if code != ExitOK || errs != "" {
		t.Fatalf("exit %d, stderr %q", code, errs)
	}
	for _, want := range []string{
		"# Start beside it:  brownout serve --policy FILE --listen unix:/tmp/brownout/extproc.sock --seal unix:/tmp/brownout/seal.sock --inner unix:/tmp/brownout/inner.sock\n",
		"port_value: 8787\n", "port_value: 8788\n", "port_value: 9901\n", "path: /dev/stdout\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
}

func TestEnvoyBootstrapLeavesOutWhatIsNone(t *testing.T) {
	code, out, errs := bootstrapCommand(t, onePolicy, "--listen", "127.0.0.1:8080", "--upstream", "full=h2c://h:1",
		"--envoy-admin", "none", "--access-log", "none", "--processor", "10.0.0.1:9000", "--seal", "none")
	if code != ExitOK {
		t.Fatalf("exit %d, stderr %q", code, errs)
	}
	for _, unwanted := range []string{"\nadmin:", "access_log:", "pipe:", "name: inner", "brownout_seal", "/sealed"} {
		if strings.Contains(out, unwanted) {
			t.Errorf("output has %q", unwanted)
		}
	}
}

func TestEnvoyBootstrapRendersTheSealsAddresses(t *testing.T) {
	code, out, errs := bootstrapCommand(t, onePolicy, "--listen", "127.0.0.1:8080", "--upstream", "full=http://h:1",
		"--seal", "127.0.0.1:9001", "--inner", "unix:/run/x/inner.sock", "--socket-mode", "0660")
	if code != ExitOK || errs != "" {
		t.Fatalf("exit %d, stderr %q", code, errs)
	}
	for _, want := range []string{"--seal 127.0.0.1:9001 --inner unix:/run/x/inner.sock\n", "/run/x, if brownout serve has not", "port_value: 9001\n",
		"path: /run/x/inner.sock\n", "mode: 432\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
}

func TestEnvoyBootstrapNamesTheFlagTheValueAndTheRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown tier":          {[]string{"--upstream", "big=http://h:1", "--upstream", "full=http://h:1"}, `brownout: --upstream "big=http://h:1": the policy has no model tier "big" (its tiers: full)`},
		"tier without upstream": {[]string{"--upstream", "big=http://h:1"}, `brownout: --upstream: tier "full" has no upstream (add --upstream full=http://HOST:PORT)`},
		"bad URL":               {[]string{"--upstream", "full=ftp://h:1"}, `brownout: --upstream "full=ftp://h:1": unknown scheme "ftp" (use http, h2c or https)`},
		"bad processor":         {[]string{"--upstream", "full=h:1", "--processor", "nowhere"}, `brownout: --processor "nowhere": not an address with a port (write unix:/PATH or HOST:PORT`},
		"seal elsewhere":        {[]string{"--upstream", "full=h:1", "--seal", "10.0.0.1:9000"}, `brownout: --seal "10.0.0.1:9000": "10.0.0.1" is not an address of this machine alone (write unix:/PATH or 127.0.0.1:PORT)`},
		"inner elsewhere":       {[]string{"--upstream", "full=h:1", "--inner", "[::]:9000"}, `brownout: --inner "[::]:9000": "::" is not an address of this machine alone`},
		"seal and inner alike":  {[]string{"--upstream", "full=h:1", "--seal", "unix:/a", "--inner", "unix:/a"}, `brownout: --inner "unix:/a": this is where the seal listens`},
		"relative inner":        {[]string{"--upstream", "full=h:1", "--inner", "unix:a"}, `brownout: --inner "unix:a": the socket path is not absolute (write unix:/PATH, as given to ` + "`brownout serve --inner`)"},
		"bad mode":              {[]string{"--upstream", "full=h:1", "--socket-mode", "rw"}, `brownout: --socket-mode "rw": not an octal mode (write one such as 0600 or 0660)`},
		"bad admin":             {[]string{"--upstream", "full=h:1", "--envoy-admin", "off"}, `brownout: --envoy-admin "off": not an address with a port (write IP:PORT`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := bootstrapCommand(t, onePolicy, append([]string{"--listen", "127.0.0.1:8080"}, c.args...)...)
			if code != ExitUsage || out != "" || !strings.Contains(errs, c.want) {
				t.Errorf("exit %d, stdout %q, stderr:\n%s\nwant exit 2 and %q", code, out, errs, c.want)
			}
		})
	}
}

func TestEnvoyBootstrapReportsEveryProblemOfABadPolicy(t *testing.T) {
	code, out, errs := bootstrapCommand(t, strings.ReplaceAll(onePolicy, "4, queue: 8", "0, queue: -1"),
		"--listen", "127.0.0.1:8080", "--upstream", "full=h:1")
	if code != ExitUsage || out != "" || strings.Count(errs, ": error: ") != 2 {
		t.Errorf("exit %d, stdout %q, stderr:\n%s", code, out, errs)
	}
}

func TestEnvoyBootstrapReportsEveryBadFlagAtOnce(t *testing.T) {
	code, out, errs := bootstrapCommand(t, onePolicy, "--listen", "nowhere", "--upstream", "full=ftp://h:1", "--upstream", "full=http://h:2/path",
		"--envoy-admin", "off", "--socket-mode", "rw", "--seal", "10.0.0.1:1")
	if code != ExitUsage || out != "" {
		t.Fatalf("exit %d, stdout %q", code, out)
	}
	var flags []string
	for line := range strings.Lines(errs) {
		flag, _, _ := strings.Cut(strings.TrimPrefix(line, "brownout: "), " ")
		flags = append(flags, flag)
	}
	slices.Sort(flags)
	if want := []string{"--envoy-admin", "--listen", "--seal", "--socket-mode", "--upstream", "--upstream"}; !slices.Equal(flags, want) {
		t.Errorf("complaints about %q, want one each about %q:\n%s", flags, want, errs)
	}
}
