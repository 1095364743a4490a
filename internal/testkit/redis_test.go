package testkit

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ask sends one inline command and returns the first two lines of the answer.
func ask(t *testing.T, addr, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "%s\r\n", command)
	lines := bufio.NewReader(conn)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(first, "$") && first != "$-1\r\n" {
		if first, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return strings.TrimSpace(first)
}

func TestARedisThatWasKilledHasWhatItConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		appendOnly bool
		want       string
	}{"append only": {true, "v"}, "in memory": {false, "$-1"}} {
		t.Run(name, func(t *testing.T) {
			r := StartRedis(t, RedisOptions{AppendOnly: c.appendOnly})
			if got := ask(t, r.Addr, "SET k v"); got != "+OK" {
				t.Fatalf("SET: %q", got)
			}
			r.Kill()
			if _, err := net.Dial("tcp", r.Addr); err == nil {
				t.Fatal("the killed server still listens")
			}
			r.Restart()
			if got := ask(t, r.Addr, "GET k"); got != c.want {
				t.Errorf("GET after the restart: %q, want %q", got, c.want)
			}
		})
	}
}

func TestARedisWithAPasswordAsksForIt(t *testing.T) {
	r := StartRedis(t, RedisOptions{Password: "p"})
	if got := ask(t, r.Addr, "GET k"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("GET without the password: %q", got)
	}
}

// redisCheckout runs a copy of get-redis.sh whose apt and dpkg are stand-ins.
func redisCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: t.TempDir()}
	for _, name := range []string{"get-redis.sh", "fetch_redis.py"} {
		b, err := os.ReadFile(filepath.Join(RepoRoot(t), "scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		c.write("scripts/"+name, string(b), 0o755)
	}
	// Whatever server this machine has, one that is too old comes first.
	c.write("bin/redis-server", fakeRedis("5.0.7"), 0o755)
	c.write("bin/apt-cache", fakeAptCache, 0o755)
	c.write("bin/apt-get", fakeAptGet, 0o755)
	c.write("bin/dpkg-deb", "#!/bin/sh\nmkdir -p \"$3/usr/bin\"\ncp \"$FAKE_SERVER\" \"$3/usr/bin/redis-server\"\n", 0o755)
	c.write("server", fakeRedis("7.9.1"), 0o755)
	return c
}

const fakeAptCache = `#!/bin/sh
case "$*" in
*policy*) [ -n "${FAKE_NO_INDEX:-}" ] && [ ! -e "$FAKE_DIR/updated" ] && exit 0; echo "redis-server:"; echo "  Candidate: 5:7.9.1-1";;
*depends*) echo "  Depends: libthing1"; echo "  Depends: libc6";;
*show*) echo "SHA256: ${FAKE_SUM:-$(echo deb | sha256sum | cat | sed 's/ .*//')}";;
esac
`

const fakeAptGet = `#!/bin/sh
for a; do case "$a" in
update) : > "$FAKE_DIR/updated"; exit;;
download) [ -z "${FAKE_OFFLINE:-}" ] || { echo "no route to the mirror" >&2; exit 100; }; found=1;;
-*) ;;
*=*) ;;
*) [ -z "${found:-}" ] || { echo deb > "${a}_5%3a7.9.1-1_amd64.deb"; echo "$a" >> "$FAKE_DIR/calls"; };;
esac; done
`

func fakeRedis(version string) string {
	return "#!/bin/sh\necho 'Redis server v=" + version + " sha=0'\n"
}

func (c *checkout) runRedis(env ...string) (stdout, stderr string, err error) {
	var out, msg strings.Builder
	cmd := exec.Command(filepath.Join(c.dir, "scripts", "get-redis.sh"))
	cmd.Env = append([]string{"PATH=" + filepath.Join(c.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + c.dir, "PYTHONDONTWRITEBYTECODE=1",
		"FAKE_DIR=" + c.dir, "FAKE_SERVER=" + filepath.Join(c.dir, "server")}, env...)
	cmd.Stdout, cmd.Stderr = &out, &msg
	err = cmd.Run()
	return out.String(), msg.String(), err
}

func TestGetRedisFetchesOnce(t *testing.T) {
	for name, env := range map[string][]string{"an index is there": nil, "no index is there": {"FAKE_NO_INDEX=1"}} {
		t.Run(name, func(t *testing.T) {
			c := redisCheckout(t)
			want := filepath.Join(c.dir, ".cache/redis/redis-server") + "\n"
			for range 2 {
				if out, msg, err := c.runRedis(env...); err != nil || out != want {
					t.Fatalf("stdout %q, stderr:\n%s\n%v", out, msg, err)
				}
			}
			calls, err := os.ReadFile(filepath.Join(c.dir, "calls"))
			if err != nil || string(calls) != "redis-server\nredis-tools\nlibthing1\n" {
				t.Errorf("downloaded %q, %v", calls, err)
			}
			if _, err := os.Stat(filepath.Join(c.dir, "updated")); (err == nil) != (env != nil) {
				t.Errorf("an index was fetched: %t", err == nil)
			}
		})
	}
}

func TestGetRedisSaysWhyItHasNone(t *testing.T) {
	c := redisCheckout(t)
	refuses := func(want string, env ...string) {
		t.Helper()
		out, msg, err := c.runRedis(env...)
		if err == nil || out != "" || !strings.Contains(msg, want) || !strings.Contains(msg, "remedy: ") {
			t.Errorf("stdout %q, stderr:\n%s\n%v; want %q and a remedy", out, msg, err, want)
		}
	}
	refuses("could not download", "FAKE_OFFLINE=1")
	refuses("the signed index states 00", "FAKE_SUM="+strings.Repeat("0", 64))
	refuses("is not an executable file", "REDIS_BIN="+c.dir)
	c.write("server", "#!/bin/sh\nexit 1\n", 0o755)
	refuses("does not run on this machine")
	for _, name := range []string{"sh", "dirname", "sed", "head"} {
		p, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		c.link(p, filepath.Join(c.dir, "bare", name))
	}
	refuses("apt-get is needed", "PATH="+filepath.Join(c.dir, "bare"))
	if _, err := os.Stat(filepath.Join(c.dir, ".cache/redis/redis-server")); err == nil {
		t.Error("a refused server was installed")
	}
}

func TestGetRedisPrefersWhatIsThere(t *testing.T) {
	c := redisCheckout(t)
	given := c.write("given/redis-server", fakeRedis("2.0.0"), 0o755)
	newer := c.write("newer/redis-server", fakeRedis("8.0.0"), 0o755)
	for name, k := range map[string]struct{ env, want string }{
		"REDIS_BIN whatever its version": {"REDIS_BIN=" + given, given},
		"a new one on PATH":              {"PATH=" + filepath.Dir(newer) + ":" + os.Getenv("PATH"), newer},
		"not an old one on PATH":         {"REDIS_BIN=", filepath.Join(c.dir, ".cache/redis/redis-server")},
	} {
		t.Run(name, func(t *testing.T) {
			if out, msg, err := c.runRedis(k.env); err != nil || out != k.want+"\n" {
				t.Errorf("stdout %q, stderr %q, %v; want %q", out, msg, err, k.want)
			}
		})
	}
}
