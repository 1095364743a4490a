package app

import (
	"strings"
	"testing"
)

func TestABadCommandLineNamesTheHelpThatAnswersIt(t *testing.T) {
	for line, want := range map[string]string{
		"policy check":                   "brownout: missing argument: <file> ...\nRun \"brownout policy check --help\" to see what it takes.\n",
		"policy":                         "brownout: expected one of \"check\", \"explain\", \"schema\"\nRun \"brownout policy --help\" to see what it takes.\n",
		"serve":                          "brownout: missing flags: --policy=FILE\nRun \"brownout serve --help\" to see what it takes.\n",
		"serve --policy x --log-level y": "brownout: --log-level must be one of \"debug\",\"info\",\"warn\",\"error\" but got \"y\"\nRun \"brownout serve --help\" to see what it takes.\n",
		"bogus":                          "brownout: unexpected argument bogus\nRun \"brownout --help\" to see what it takes.\n",
	} {
		var out, msg strings.Builder
		if code := Main(t.Context(), strings.Fields(line), Stdio{Out: &out, Err: &msg}); code != ExitUsage || out.String() != "" || msg.String() != want {
			t.Errorf("brownout %s: exit %d, stdout %q, stderr %q, want %q", line, code, out.String(), msg.String(), want)
		}
	}
}
