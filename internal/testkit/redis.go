package testkit

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Redis is a running redis-server on a loopback address. Its methods are for the test's goroutine.
type Redis struct {
	Addr string // HOST:PORT; a restart keeps it

	t    testing.TB
	opts RedisOptions
	proc *Process
}

// RedisOptions say how a server is started.
type RedisOptions struct {
	// AppendOnly: every write is on disk before it is confirmed (appendonly yes, appendfsync always), and a server that is
	// started again in the same folder has it. False: nothing is written to disk.
	AppendOnly bool
	Dir        string   // where data files go; default: a folder of the test's
	Password   string   // of the default user; "": none is asked for
	Args       []string // more arguments of redis-server
}

// startAttempts is how often a server is started on another port when somebody was faster on the one chosen before.
const startAttempts = 5

// StartRedis starts a real redis-server, which scripts/get-redis.sh chooses, and waits until it serves.
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r := &Redis{t: t, opts: o}
	for range startAttempts {
		r.Addr = FreeAddr(t)
		if r.start() {
			return r
		}
	}
	t.Fatalf("no port for redis-server was free in %d attempts:\n%s", startAttempts, r.proc.Log())
	return nil
}

// start says whether the server got its port.
func (r *Redis) start() bool {
	r.t.Helper()
	host, port, err := net.SplitHostPort(r.Addr)
	if err != nil {
		r.t.Fatal(err)
	}
	args := []string{"--bind", host, "--port", port, "--dir", r.opts.Dir, "--save", "", "--daemonize", "no"}
	if r.opts.AppendOnly {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if r.opts.Password != "" {
		args = append(args, "--requirepass", r.opts.Password)
	}
	r.proc = StartProcess(r.t, RedisPath(r.t), append(args, r.opts.Args...)...)
	var taken bool
	r.proc.waitFor("the server to be ready", func() bool {
		log := r.proc.Log()
		taken = strings.Contains(log, "Address already in use")
		return taken || strings.Contains(log, "Ready to accept connections")
	})
	return !taken
}

// Kill ends the server at once, as kill -9 does. What it had confirmed with AppendOnly is on disk.
func (r *Redis) Kill() {
	r.t.Helper()
	r.proc.Kill()
}

// Restart starts the server again on its address and in its folder, killing it first if it runs.
func (r *Redis) Restart() {
	r.t.Helper()
	r.Kill()
	if !r.start() {
		r.t.Fatalf("somebody else has taken %s since redis-server left it", r.Addr)
	}
}

// Pause stops the server without closing its connections, until Resume: nothing answers.
func (r *Redis) Pause() {
	r.t.Helper()
	r.proc.Signal(syscall.SIGSTOP)
}

// Resume lets a paused server go on.
func (r *Redis) Resume() {
	r.t.Helper()
	r.proc.Signal(syscall.SIGCONT)
}

// RedisPath returns the redis-server that scripts/get-redis.sh chooses, and ends the test if there is none.
func RedisPath(t testing.TB) string {
	t.Helper()
	bin, err := redisPath()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var redisPath = sync.OnceValues(func() (string, error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	var out, msg bytes.Buffer
	cmd := exec.Command(filepath.Join(root, "scripts", "get-redis.sh"))
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("no redis-server to test with: %w\n%s", err, msg.String())
	}
	return strings.TrimSpace(out.String()), nil
})
