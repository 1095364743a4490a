package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// failServe runs a `brownout serve` that ends by itself.
func failServe(t *testing.T, args ...string) (code int, errs string) {
	t.Helper()
	var out, e bytes.Buffer
	args = append([]string{"serve", "--http", "none", "--admin", "none", "--seal", "none"}, args...)
	code = Main(t.Context(), args, Stdio{In: strings.NewReader(""), Out: &out, Err: &e})
	return code, e.String()
}

func TestServeRefusesBadUsageAndNamesFlagValueAndRemedy(t *testing.T) {
	good, dir := policyFile(t, narrow), shortDir(t)
	sock := "unix:" + filepath.Join(dir, "s")
	notPEM := filepath.Join(dir, "not.pem")
	if err := os.WriteFile(notPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := "unix:" + filepath.Join(dir, strings.Repeat("x", 120))
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no policy", nil, "missing flags: --policy=FILE"},
		{"policy away", []string{"--policy", "/nowhere/policy.yaml"}, "stat /nowhere/policy.yaml: no such file or directory (write one: docs/policy.md"},
		{"policy is a directory", []string{"--policy", dir}, dir + " is not a regular file"},
		{"grace is no duration", []string{"--policy", good, "--grace", "soon"}, `--grace: expected duration but got "soon"`},
		{"grace below zero", []string{"--policy", good, "--grace=-1s"}, "--grace -1s: must not be negative"},
		{"mode", []string{"--policy", good, "--listen", sock, "--socket-mode", "0999"}, `--socket-mode "0999": want an octal mode such as 0600`},
		{"mode with other bits", []string{"--policy", good, "--listen", sock, "--socket-mode", "4755"}, `--socket-mode "4755": want an octal mode such as 0600`},
		{"level", []string{"--policy", good, "--log-level", "loud"}, `"loud"`},
		{"format", []string{"--policy", good, "--log-format", "xml"}, `--log-format must be one of "text","json" but got "xml"`},
		{"unknown flag", []string{"--policy", good, "--lisen", sock}, "unknown flag --lisen, did you mean \"--listen\"?"},
		{"argument", []string{"--policy", good, "now"}, "unexpected argument now"},
		{"TCP in clear", []string{"--policy", good, "--listen", "127.0.0.1:0"}, "--listen 127.0.0.1:0: TCP needs --tls-cert, --tls-key and --tls-client-ca, or --insecure"},
		{"half of TLS", []string{"--policy", good, "--listen", "127.0.0.1:0", "--tls-cert", notPEM}, "--tls-cert, --tls-key and --tls-client-ca go together"},
		{"TLS on a socket", []string{"--policy", good, "--listen", sock, "--tls-cert", notPEM}, "are for a TCP --listen"},
		{"certificate", []string{"--policy", good, "--listen", "127.0.0.1:0", "--tls-cert", notPEM, "--tls-key", notPEM, "--tls-client-ca", notPEM}, "--tls-cert " + notPEM},
		{"no address", []string{"--policy", good, "--listen", "somewhere", "--insecure"}, "--listen somewhere: listen tcp: address somewhere: missing port in address (want unix:PATH or HOST:PORT)"},
		{"no processor", []string{"--policy", good, "--listen", "none", "--insecure"}, "--listen none: Envoy has to reach the processor (want unix:PATH or HOST:PORT)"},
		{"relative path", []string{"--policy", good, "--listen", "unix:s"}, "--listen unix:s: want an absolute path"},
		{"empty path", []string{"--policy", good, "--listen", "unix:"}, "--listen unix:: want an absolute path"},
		{"long path", []string{"--policy", good, "--listen", long}, long + ": the path is too long for a socket"},
		{"http", []string{"--policy", good, "--listen", sock, "--http", "everywhere"}, "--http everywhere: listen tcp: address everywhere: missing port in address (want HOST:PORT or none)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, errs := failServe(t, c.args...)
			if code != ExitUsage || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "brownout: ") {
				t.Errorf("exit %d, stderr:\n%s\nwant exit 2 and %q", code, errs, c.want)
			}
		})
	}
}

func TestAPortInUseIsAFailureOfTheMoment(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	code, errs := failServe(t, "--policy", policyFile(t, narrow), "--listen", "unix:"+filepath.Join(shortDir(t), "s"), "--admin", taken.Addr().String())
	want := "brownout: --admin " + taken.Addr().String() + ": another process listens there (stop it, or choose another port)\n"
	if code != ExitFailure || errs != want {
		t.Errorf("exit %d, stderr %q, want exit 1 and %q", code, errs, want)
	}
}

func TestServeReportsEveryProblemOfABadPolicyAndStartsNothing(t *testing.T) {
	path := policyFile(t, strings.Replace(narrow, "concurrency: 1, queue: 1", "concurrency: 0, queue: -1", 1))
	sock := filepath.Join(shortDir(t), "s")
	code, errs := failServe(t, "--policy", path, "--listen", "unix:"+sock)
	if code != ExitUsage || strings.Count(errs, path+":2:") != 2 || !strings.Contains(errs, "policy "+path+" has errors: nothing was started") {
		t.Errorf("exit %d, stderr:\n%s", code, errs)
	}
	if _, err := os.Lstat(sock); err == nil {
		t.Error("the socket was made")
	}
}

func TestServeStartsWithWarnings(t *testing.T) {
	s := startServe(t, strings.Replace(narrow, "tiers: {", "tiers: {spare: {model: {concurrency: 1, queue: 0}}, ", 1))
	if !strings.Contains(s.log.String(), "warning: tier \"spare\" is in no ladder") {
		t.Errorf("log:\n%s", s.log.String())
	}
}

func TestServeServesRequestsProbesAndState(t *testing.T) {
	s := startServe(t, narrow)
	conn := s.dial()
	first, second, third, other := open(t, conn), open(t, conn), open(t, conn), open(t, conn)
	first.request()
	first.expect("continue full")
	second.request("x-budget-ms", "9000", "x-priority", "high")
	eventually(t, "the second waits", func() bool { return s.state().Tiers[0].Waiting == 1 })
	third.request()
	third.expect(`503 {"error":{"message":"capacity: queue_full","type":"capacity","param":null,"code":"queue_full"},"reason":"queue_full"}`)

	d := s.state()
	row := d.Tiers[0]
	if d.Version != version() || len(d.PolicyHash) != 16 || d.Requests.Arrived != 3 || d.Requests.InFlight != 2 ||
		row.Tier != "full" || !row.InPolicy || row.Limit != 1 || row.InFlight != 1 || row.Queue != 1 || len(row.Next) != 1 {
		t.Errorf("state %+v", d)
	}
	if w := row.Next[0]; w.Priority != 10 || w.WaitedMs < 0 || w.GivesUpMs > 8950 || w.DeadlineMs > 9000 || w.DeadlineMs < 1000 {
		t.Errorf("the waiting request %+v", w)
	}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if status, body := s.get(s.public, path); status != 200 || body != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	for _, service := range []string{"", serviceName} {
		r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, r, err)
		}
	}
	if err := third.s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	third.expect("end")
	first.finish()
	second.expect("continue full")
	second.finish()
	other.request(":method", "GET") // the policy's route takes any method
	other.expect("continue full")
	other.finish()
	for sample, want := range map[string]float64{
		`brownout_arrivals_total{route="chat"}`: 4, `brownout_requests_total{outcome="ok",route="chat"}`: 3,
		`brownout_sheds_total{reason="queue_full",tier="full"}`: 1, `brownout_queue_depth_max{tier="full"}`: 1,
		`brownout_queue_wait_seconds_count{class="high",tier="full"}`: 1, `brownout_inflight{tier="full"}`: 0,
		`brownout_unaccounted`: 0, `brownout_envoy_stale`: 1, `brownout_config_reloads_total{result="success"}`: 1,
	} {
		if got := s.metric(sample); got != want {
			t.Errorf("%s is %g, want %g", sample, got, want)
		}
	}
	s.stop()
	if code := s.ended(); code != ExitOK {
		t.Errorf("exit %d:\n%s", code, s.log.String())
	}
}

// Whatever callers send, labels have values of the policy or of closed sets.
func TestLabelsDoNotFollowWhatCallersSend(t *testing.T) {
	s := startServe(t, narrow)
	conn := s.dial()
	for _, h := range [][]string{
		{"x-priority", "evil-class"}, {"x-budget-ms", "evil-budget"}, {"x-degrade", "evil-tier"}, {"x-max-queue-ms", "evil"},
		{"x-tier", "evil"}, {"grpc-timeout", "evil"}, {"x-evil", "evil"}, {":path", "/evil"}, {":method", "EVIL"},
	} {
		e := open(t, conn)
		e.request(h...)
		e.expect("continue full")
		e.finish()
	}
	_, page := s.get(s.public, "/metrics")
	if strings.Contains(strings.ToLower(page), "evil") {
		t.Errorf("a label follows a caller:\n%s", page)
	}
	for _, name := range []string{"x-priority", "x-budget-ms", "x-degrade", "x-max-queue-ms", "grpc-timeout"} {
		if got := s.metric(`brownout_ignored_headers_total{header="` + name + `"}`); got != 1 {
			t.Errorf("%s ignored %g times, want once", name, got)
		}
	}
}

func TestServeLogsInTextAndEachRequestAtDebug(t *testing.T) {
	s := startServe(t, narrow, "--log-level", "debug")
	e := open(t, s.dial())
	e.request()
	e.expect("continue full")
	e.finish()
	eventually(t, "the request in the log", func() bool { _, ok := s.log.find("request"); return ok })
	entry, _ := s.log.find("request")
	if entry["level"] != "DEBUG" || entry["outcome"] != "ok" || entry["tier"] != "full" {
		t.Errorf("entry %v", entry)
	}
	var text bytes.Buffer
	(&serveCmd{LogFormat: "text"}).logger(Stdio{Err: &text}).Info("hello")
	if !strings.Contains(text.String(), "level=INFO msg=hello") {
		t.Errorf("text format: %q", text.String())
	}
}

func TestServeWithoutProbesAndAdminListensForEnvoyOnly(t *testing.T) {
	s := startServe(t, narrow, "--http", "none", "--admin", "none")
	if s.public != "none" || s.private != "none" {
		t.Errorf("http %s, admin %s", s.public, s.private)
	}
	e := open(t, s.dial())
	e.request()
	e.expect("continue full")
	e.finish()
}

func TestResetStartsTheMaximaAfresh(t *testing.T) {
	s := startServe(t, narrow)
	e := open(t, s.dial())
	e.request()
	e.expect("continue full")
	e.finish()
	if got := s.state().Tiers[0].MaxFlight; got != 1 {
		t.Errorf("most in flight %d, want 1", got)
	}
	post(t, "http://"+s.private+"/debug/reset")
	if got := s.state().Tiers[0].MaxFlight; got != 0 {
		t.Errorf("most in flight after a reset %d, want 0", got)
	}
}

func TestVersionPrintsVersionGoAndPlatform(t *testing.T) {
	var out bytes.Buffer
	code := Main(t.Context(), []string{"version"}, Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
	want := "brownout " + version() + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	if code != ExitOK || out.String() != want || version() == "" {
		t.Errorf("exit %d, %q, want %q", code, out.String(), want)
	}
}

func TestVersionIsTheModulesElseTheRevision(t *testing.T) {
	vcs := func(revision, modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}}
	}
	const rev = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", vcs(rev, "false"), "v1.2.3"}, {"(devel)", vcs(rev, "false"), "0123456789ab"}, {"", vcs(rev, "true"), "0123456789ab+dirty"},
		{"(devel)", nil, "(devel)"}, {"", vcs("short", "false"), "(devel)"},
	} {
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: c.settings}); got != c.want {
			t.Errorf("module %q, %v: %q, want %q", c.module, c.settings, got, c.want)
		}
	}
}

func TestExitCodesFollowTheError(t *testing.T) {
	cause := errors.New("no such thing")
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{nil, ExitOK, ""}, {cause, ExitFailure, "brownout: no such thing\n"}, {usageError(cause), ExitUsage, "brownout: no such thing\n"},
		{fmt.Errorf("build: %w", usageError(cause)), ExitUsage, "brownout: build: no such thing\n"}, {silentExit(ExitFailure), ExitFailure, ""},
	} {
		var errs bytes.Buffer
		if code := report(c.err, &errs); code != c.code || errs.String() != c.says {
			t.Errorf("%v: exit %d and %q, want %d and %q", c.err, code, errs.String(), c.code, c.says)
		}
	}
	if !errors.Is(usageError(cause), cause) {
		t.Error("a usage error hides its cause")
	}
}

func TestHelpNamesEveryFlagWithItsDefault(t *testing.T) {
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"serve", "--help"}, Stdio{In: strings.NewReader(""), Out: &out, Err: &out}); code != ExitOK {
		t.Errorf("exit %d", code)
	}
	page := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"--policy=FILE", "--listen=ADDR", "(unix:/tmp/brownout/extproc.sock)", "--http=ADDR", "(:9464)", "--admin=ADDR", "(127.0.0.1:9465)",
		"--socket-mode=MODE", "(0600)", "--grace=30s", "--tls-cert=FILE", "--tls-key=FILE", "--tls-client-ca=FILE", "--insecure",
		`--log-level="info"`, `--log-format="text"`, "brownout envoy bootstrap", "503 shutting_down", "Exit codes:",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
}

func TestWithoutACommandTheHelpIsPrinted(t *testing.T) {
	var out bytes.Buffer
	code := Main(t.Context(), nil, Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != ExitOK || !strings.Contains(out.String(), "Usage: brownout <command>") {
		t.Errorf("exit %d, %s", code, out.String())
	}
}

func TestStateOfAnIdleServerHasNoNulls(t *testing.T) {
	s := startServe(t, narrow)
	_, body := s.get(s.private, "/debug/state")
	if !json.Valid([]byte(body)) || strings.Contains(body, "null") || !strings.Contains(body, `"next": []`) {
		t.Errorf("state %s", body)
	}
}
