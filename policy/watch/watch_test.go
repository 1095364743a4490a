package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/policy"
	"github.com/envoy-brownout/brownout/policy/watch"
)

// patience bounds every wait of these tests; it is reached only when something is broken.
const patience = 20 * time.Second

// never is a poll interval no test lives to see, so that what arrives arrived by an event.
const never = time.Hour

// policyText is a valid policy that differs by its number.
func policyText(n int) string {
	return fmt.Sprintf("version: 1\ntiers: {full: {model: {concurrency: 4, queue: %d}}}\nroutes: [{name: chat, ladder: [full]}]\n", n)
}

// rig runs one watcher whose apply takes valid policies only, as the real caller's does.
type rig struct {
	t        *testing.T
	applied  chan string
	failures chan error
}

func start(t *testing.T, o watch.Options) *rig {
	t.Helper()
	r := &rig{t: t, applied: make(chan string, 100), failures: make(chan error, 100)}
	o.Failed = func(err error) { r.failures <- err }
	w, err := watch.New(o, func(src []byte) error {
		if s, problems := policy.Parse("policy.yaml", src); s == nil {
			return errors.New(problems[0].String())
		}
		r.applied <- string(src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// expectApplied waits for the next content applied, which must be want.
func (r *rig) expectApplied(want string) {
	r.t.Helper()
	select {
	case got := <-r.applied:
		if got != want {
			r.t.Fatalf("applied %q, want %q", got, want)
		}
	case err := <-r.failures:
		r.t.Fatalf("failed with %v, want %q applied", err, want)
	case <-time.After(patience):
		r.t.Fatalf("nothing applied, want %q", want)
	}
}

// expectFailure waits for a failure whose text contains want; nothing may be applied before it.
func (r *rig) expectFailure(want string) {
	r.t.Helper()
	select {
	case got := <-r.applied:
		r.t.Fatalf("applied %q, want a failure with %q", got, want)
	case err := <-r.failures:
		if !strings.Contains(err.Error(), want) {
			r.t.Fatalf("failed with %v, want %q in it", err, want)
		}
	case <-time.After(patience):
		r.t.Fatalf("no failure, want one with %q", want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// configMap is a directory as the kubelet lays out a mounted ConfigMap: policy.yaml → ..data/policy.yaml and
// ..data → a directory per version, swapped by renaming a new link over the old one.
type configMap struct {
	t       *testing.T
	dir     string
	version string
}

func (c *configMap) path() string { return filepath.Join(c.dir, "policy.yaml") }

// swap publishes text the way the kubelet does, and removes the version before.
func (c *configMap) swap(text string) {
	c.t.Helper()
	next, err := os.MkdirTemp(c.dir, "..version_")
	do(c.t, err)
	write(c.t, filepath.Join(next, "policy.yaml"), text)
	tmp := filepath.Join(c.dir, "..data_tmp")
	do(c.t, os.Symlink(filepath.Base(next), tmp), os.Rename(tmp, filepath.Join(c.dir, "..data")))
	if c.version == "" {
		do(c.t, os.Symlink(filepath.Join("..data", "policy.yaml"), c.path()))
	} else {
		do(c.t, os.RemoveAll(c.version))
	}
	c.version = next
}

func TestC108SymlinkSwapIsAppliedOnce(t *testing.T) {
	c := &configMap{t: t, dir: t.TempDir()}
	c.swap(policyText(1))
	r := start(t, watch.Options{Path: c.path(), Loaded: []byte(policyText(1)), Poll: never})
	c.swap(policyText(2))
	r.expectApplied(policyText(2))
	c.swap(policyText(3))
	r.expectApplied(policyText(3)) // and not 2 again
}

func TestC109FiveSwapsInARowAreFiveReloads(t *testing.T) {
	c := &configMap{t: t, dir: t.TempDir()}
	c.swap(policyText(0))
	r := start(t, watch.Options{Path: c.path(), Poll: never})
	r.expectApplied(policyText(0)) // nothing was loaded before
	for i := 1; i <= 5; i++ {
		c.swap(policyText(i))
		r.expectApplied(policyText(i))
	}
}

func TestC109FiveRenamesOverAPlainFileAreFiveReloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, policyText(0))
	r := start(t, watch.Options{Path: path, Loaded: []byte(policyText(0)), Poll: never})
	for i := 1; i <= 5; i++ {
		write(t, path+".new", policyText(i))
		do(t, os.Rename(path+".new", path))
		r.expectApplied(policyText(i))
	}
}

func TestC111TwentyEventsInABurstAreOneReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, policyText(0))
	r := start(t, watch.Options{Path: path, Loaded: []byte(policyText(0)), Poll: never, Debounce: 500 * time.Millisecond})
	for i := 1; i <= 20; i++ {
		write(t, path, policyText(i))
	}
	r.expectApplied(policyText(20))
	write(t, path, policyText(99))
	r.expectApplied(policyText(99)) // nothing came in between
}

func TestC111MissingFileIsReportedOnceAndComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, policyText(1))
	r := start(t, watch.Options{Path: path, Loaded: []byte(policyText(1)), Poll: 5 * time.Millisecond, Debounce: time.Millisecond})
	do(t, os.Remove(path))
	r.expectFailure("no such file")
	write(t, path+".new", policyText(1))
	do(t, os.Rename(path+".new", path)) // the same content is no reload
	write(t, path+".new", policyText(2))
	do(t, os.Rename(path+".new", path))
	r.expectApplied(policyText(2)) // and polling did not report the absence again
}

func TestC111DeletedAndRecreatedFileIsAReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, policyText(1))
	r := start(t, watch.Options{Path: path, Loaded: []byte(policyText(1)), Poll: never, Debounce: 300 * time.Millisecond})
	for i := 2; i <= 3; i++ {
		do(t, os.Remove(path))
		write(t, path, policyText(i))
		r.expectApplied(policyText(i))
	}
}

func TestC111HalfWrittenFileIsRefusedAndThenApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, policyText(1))
	r := start(t, watch.Options{Path: path, Loaded: []byte(policyText(1)), Poll: never, Debounce: 20 * time.Millisecond})
	f, err := os.Create(path)
	do(t, err)
	text := policyText(2)
	_, err = f.WriteString(text[:len(text)/2])
	do(t, err)
	r.expectFailure("policy.yaml:")
	_, err = f.WriteString(text[len(text)/2:])
	do(t, err, f.Close())
	r.expectApplied(text)
}

func TestC111InvalidFileIsRefusedOnceAndTheRepairApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, policyText(1))
	r := start(t, watch.Options{Path: path, Loaded: []byte(policyText(1)), Poll: 5 * time.Millisecond, Debounce: time.Millisecond})
	write(t, path+".new", "version: [\n")
	do(t, os.Rename(path+".new", path))
	r.expectFailure("not YAML")
	write(t, path+".new", policyText(1)) // back to what is in force: applied, so that the caller sees health return
	do(t, os.Rename(path+".new", path))
	r.expectApplied(policyText(1))
}

func TestInPlaceWriteThroughALinkToAnotherDirectoryIsNoticed(t *testing.T) {
	real := filepath.Join(t.TempDir(), "real.yaml")
	link := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, real, policyText(1))
	do(t, os.Symlink(real, link))
	r := start(t, watch.Options{Path: link, Poll: never, Debounce: 100 * time.Millisecond})
	r.expectApplied(policyText(1))
	write(t, real, policyText(2))
	r.expectApplied(policyText(2))
}

func TestReplacedDirectoryIsWatchedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	path := filepath.Join(dir, "policy.yaml")
	do(t, os.Mkdir(dir, 0o755))
	write(t, path, policyText(1))
	r := start(t, watch.Options{Path: path, Poll: never, Debounce: 100 * time.Millisecond})
	r.expectApplied(policyText(1))

	do(t, os.Mkdir(dir+".new", 0o755))
	write(t, filepath.Join(dir+".new", "policy.yaml"), policyText(2))
	do(t, os.Rename(dir, dir+".old"), os.Rename(dir+".new", dir))
	r.expectApplied(policyText(2))
	write(t, path+".tmp", policyText(3))
	do(t, os.Rename(path+".tmp", path)) // the new directory has a watch of its own
	r.expectApplied(policyText(3))
}

func TestPollFindsAFileWhoseDirectoryDidNotExist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "yet", "policy.yaml")
	r := start(t, watch.Options{Path: path, Poll: 10 * time.Millisecond, Debounce: time.Millisecond})
	r.expectFailure("no such file")
	staged := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, staged, policyText(1))
	do(t, os.MkdirAll(filepath.Dir(path), 0o755), os.Rename(staged, path))
	r.expectApplied(policyText(1))
}

func TestReadRefusesWhatIsNoRegularFile(t *testing.T) {
	if _, err := watch.Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("directory: %v", err)
	}
}

func TestReadStopsAboveTheLargestPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, strings.Repeat("#", 2*policy.MaxBytes))
	src, err := watch.Read(path)
	if err != nil || len(src) != policy.MaxBytes+1 {
		t.Errorf("read %d bytes, %v, want %d", len(src), err, policy.MaxBytes+1)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	apply := func([]byte) error { return nil }
	for _, o := range []watch.Options{{}, {Path: "p", Poll: -1}, {Path: "p", Debounce: -1}} {
		if w, err := watch.New(o, apply); err == nil {
			t.Errorf("New(%+v) = %v, want an error", o, w)
		}
	}
}
