package testkit

import (
	"os"
	"testing"
)

// SocketDir returns a directory with a short name for Unix sockets, removed at the end of the test: t.TempDir carries the
// test's name, and a socket's path has at most 107 bytes.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
