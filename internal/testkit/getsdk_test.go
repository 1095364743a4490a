package testkit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGetSDKSaysWhichToolIsMissing runs scripts/get_sdk.py in a copy of what it reads, with stand-ins for node and npm.
func TestGetSDKSaysWhichToolIsMissing(t *testing.T) {
	c := &checkout{t: t, dir: t.TempDir()}
	for _, name := range []string{"scripts/get_sdk.py", "e2e/sdk/node/package.json", "e2e/sdk/node/package-lock.json", "e2e/sdk/node/driver.mjs"} {
		b, err := os.ReadFile(filepath.Join(RepoRoot(t), name))
		if err != nil {
			t.Fatal(err)
		}
		c.write(name, string(b), 0o644)
	}
	// The one on PATH may be a script that needs more of PATH than it will have.
	real, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	python := strings.TrimSpace(string(real))
	tools := filepath.Join(c.dir, "tools")
	get := func(name string) (string, string, error) {
		var out, msg bytes.Buffer
		cmd := exec.Command(python, "scripts/get_sdk.py", name)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, []string{"PATH=" + tools, "PYTHONDONTWRITEBYTECODE=1"}, &out, &msg
		err := cmd.Run()
		return out.String(), msg.String(), err
	}
	refuses := func(name, want string) {
		t.Helper()
		if out, msg, err := get(name); err == nil || out != "" || !strings.Contains(msg, want) || !strings.Contains(msg, "remedy: ") {
			t.Errorf("%v, stdout %q, stderr:\n%s\nwant %q and a remedy", err, out, msg, want)
		}
	}
	refuses("perl", "no part perl")
	refuses("node", "node is needed")
	c.write("tools/node", "#!/bin/sh\necho v18.1.0\n", 0o755)
	refuses("node", "node is version 18")
	c.write("tools/node", "#!/bin/sh\necho v20.1.0\n", 0o755)
	refuses("node", "npm is needed")
	c.write("tools/npm", "#!/bin/sh\necho no route; exit 1\n", 0o755)
	refuses("node", "npm failed with status 1")
	c.write("tools/npm", "#!/bin/sh\necho x >> "+filepath.Join(c.dir, "calls")+"\n", 0o755)
	for range 2 {
		out, msg, err := get("node")
		if driver := strings.TrimSpace(out); err != nil || filepath.Base(driver) != "driver.mjs" || !strings.HasPrefix(driver, c.dir) {
			t.Fatalf("%v, stdout %q, stderr %q", err, out, msg)
		}
	}
	if calls, err := os.ReadFile(filepath.Join(c.dir, "calls")); err != nil || string(calls) != "x\n" {
		t.Errorf("npm was called for %q, %v; want once", calls, err)
	}
}
