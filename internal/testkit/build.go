package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// BuildBrownout builds cmd/brownout, once per test binary, and returns its path. With BROWNOUT_TEST_RACE=1 in the
// environment it is built with the race detector.
func BuildBrownout(t testing.TB) string {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var built = sync.OnceValues(func() (string, error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	name, args := "brownout", []string{"build"}
	if os.Getenv("BROWNOUT_TEST_RACE") == "1" {
		name, args = "brownout-race", append(args, "-race")
	}
	// Test binaries run side by side: each builds under a name of its own and moves the result into place, which
	// leaves a binary that is running untouched.
	staging, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(staging)
	out := filepath.Join(staging, name)
	cmd := exec.Command("go", append(args, "-o", out, "./cmd/brownout")...)
	cmd.Dir = root
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cmd/brownout: %w\n%s", err, msg)
	}
	final := filepath.Join(dir, name)
	return final, os.Rename(out, final)
})

// EnvoyPath returns the Envoy binary that scripts/get-envoy.sh chooses, and ends the test if there is none.
func EnvoyPath(t testing.TB) string {
	t.Helper()
	bin, err := envoyPath()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var envoyPath = sync.OnceValues(func() (string, error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	var out, msg bytes.Buffer
	cmd := exec.Command(filepath.Join(root, "scripts", "get-envoy.sh"))
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("no Envoy to test with: %w\n%s", err, msg.String())
	}
	return strings.TrimSpace(out.String()), nil
})

// EnvoyBefore says whether the Envoy of the tests is older than MAJOR.MINOR: what an old one cannot do is asserted too,
// never skipped.
func EnvoyBefore(t testing.TB, major, minor int) bool {
	t.Helper()
	out, err := exec.Command(EnvoyPath(t), "--version").Output()
	if err != nil {
		t.Fatalf("asking Envoy for its version: %v", err)
	}
	m := regexp.MustCompile(`/(\d+)\.(\d+)\.\d+`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no version in %q", out)
	}
	a, _ := strconv.Atoi(string(m[1])) // digits
	b, _ := strconv.Atoi(string(m[2]))
	return a < major || (a == major && b < minor)
}

// RepoRoot returns the folder of go.mod.
func RepoRoot(t testing.TB) string {
	t.Helper()
	root, err := repoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// repoRoot walks up from the folder the test runs in, which is the one of its package.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working folder of the test")
		}
		dir = parent
	}
}
