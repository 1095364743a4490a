package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/stub"
	"github.com/envoy-brownout/brownout/policy"
)

// demoPolicy is the policy of the demo.
const demoPolicy = `version: 1
tiers:
  full: {model: {concurrency: 4, queue: 8}}   # four run, eight wait
  gone: {model: {concurrency: 4, queue: 8}}   # nobody listens at its address
  canned: {template: {text: "We are at capacity. This is a fixed answer."}}
routes:
- name: chat
  match: {method: POST, path: {prefix: /v1/chat/completions}}
  ladder: [full]
- name: unsealed
  match: {method: POST, path: {exact: /v1/unsealed}}
  ladder: [full]
  stream: {seal: false}                       # see 2.9
- name: gone
  match: {method: POST, path: {exact: /v1/gone}}
  ladder: [gone]
- name: ladder
  match: {method: POST, path: {prefix: /v1/ladder}}
  ladder: [full, canned]
  cache: {ttl: 60s}
`

const (
	demoPath     = "/v1/chat/completions"
	unsealedPath = "/v1/unsealed"
	gonePath     = "/v1/gone"
	ladderPath   = "/v1/ladder/v1/chat/completions"

	// statStreams counts the streams Envoy opened to brownout.
	statStreams = "http.front.ext_proc.streams_started"

	// readyWait bounds how long a part may take to come up on a busy machine.
	readyWait = 30 * time.Second
	readyPoll = 10 * time.Millisecond
)

// demoStack is everything the demo starts. stop ends it.
type demoStack struct {
	dir, policyPath, accessLog                           string
	stubAddr, httpAddr, adminAddr, envoyAddr, envoyAdmin string
	envoyVersion                                         string

	stub     *stub.Stub
	endStub  func() error
	nobody   net.Conn // keeps the port of tier gone from anybody who would listen on it
	brownout *child
	envoy    *child
	logAt    int64 // how far the access log has been read
}

// startDemoStack starts the parts in order and waits for each. On error everything has been stopped again.
func startDemoStack(ctx context.Context, envoyBin string) (*demoStack, error) {
	s := &demoStack{}
	err := s.start(ctx, envoyBin)
	if err == nil {
		return s, nil
	}
	var logs strings.Builder
	if ctx.Err() == nil {
		s.dumpLogs(&logs)
	}
	_, stopErr := s.stop()
	if logs.Len() > 0 {
		err = fmt.Errorf("%w\n%s", err, logs.String())
	}
	return nil, errors.Join(err, stopErr)
}

func (s *demoStack) start(ctx context.Context, envoyBin string) (err error) {
	if s.envoyVersion, err = envoyVersion(ctx, envoyBin); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "brownout-demo-"); err != nil {
		return err
	}
	s.policyPath, s.accessLog = filepath.Join(s.dir, "policy.yaml"), filepath.Join(s.dir, "access.log")
	if err := os.WriteFile(s.policyPath, []byte(demoPolicy), 0o644); err != nil {
		return err
	}
	if err := s.startStub(ctx); err != nil {
		return err
	}
	if s.nobody, err = new(net.Dialer).DialContext(ctx, "tcp", s.stubAddr); err != nil {
		return err
	}
	if err := s.startBrownout(ctx); err != nil {
		return err
	}
	return s.startEnvoy(ctx, envoyBin)
}

var versionText = regexp.MustCompile(`version: [^/]*/(\d+\.\d+\.\d+)`)

// envoyVersion asks the binary, which also shows that it runs here.
func envoyVersion(ctx context.Context, bin string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w (is it an Envoy for this machine?)\n%s", bin, err, out)
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s --version says %q: not an Envoy", bin, strings.TrimSpace(string(out)))
	}
	return string(m[1]), nil
}

// startStub serves the model in this process, so that its counters can be read directly.
func (s *demoStack) startStub(ctx context.Context) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if s.stub, err = stub.New(stub.Config{}); err != nil {
		return errors.Join(err, ln.Close())
	}
	s.stubAddr = ln.Addr().String()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it ends after Envoy, not with the script
	ended := make(chan error, 1)
	go func() { ended <- stub.Serve(life, ln, s.stub) }()
	s.endStub = func() error {
		cancel()
		return <-ended
	}
	return nil
}

// socket is the address of a socket of the demo's.
func (s *demoStack) socket(name string) string { return "unix:" + filepath.Join(s.dir, name+".sock") }

func (s *demoStack) startBrownout(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.brownout, err = startChild(s.dir, "brownout", self, "serve", "--policy", s.policyPath, "--listen", s.socket("extproc"),
		"--seal", s.socket("seal"), "--inner", s.socket("inner"), "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grace", "2s", "--log-format", "json")
	if err != nil {
		return err
	}
	return s.until(ctx, s.brownout, func() (bool, error) {
		for line := range strings.Lines(s.brownout.log()) {
			var l struct{ Msg, HTTP, Admin string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "serving" {
				s.httpAddr, s.adminAddr = l.HTTP, l.Admin
				return true, nil
			}
		}
		return false, nil
	})
}

func (s *demoStack) startEnvoy(ctx context.Context, bin string) error {
	config, err := s.bootstrap()
	if err != nil {
		return err
	}
	file, adminFile := filepath.Join(s.dir, "envoy.yaml"), filepath.Join(s.dir, "envoy-admin")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	s.envoy, err = startChild(s.dir, "envoy", bin, "--config-path", file, "--use-dynamic-base-id", "--admin-address-path", adminFile,
		"--concurrency", "2", "--log-level", "warning", "--file-flush-interval-msec", "20")
	if err != nil {
		return err
	}
	return s.until(ctx, s.envoy, func() (bool, error) {
		admin, err := os.ReadFile(adminFile)
		if err != nil || len(admin) == 0 {
			return false, nil // not written yet
		}
		s.envoyAdmin = strings.TrimSpace(string(admin))
		if text, err := get(ctx, "http://"+s.envoyAdmin+"/ready"); err != nil || !strings.HasPrefix(text, "LIVE") {
			return false, nil // not up yet
		}
		s.envoyAddr, err = s.envoyListener(ctx)
		return s.envoyAddr != "", err
	})
}

// bootstrap renders Envoy's configuration as "brownout envoy bootstrap" does.
func (s *demoStack) bootstrap() ([]byte, error) {
	snap, problems := policy.Parse("policy.yaml", []byte(demoPolicy))
	if snap == nil {
		return nil, fmt.Errorf("the demo's own policy has errors: %v", problems)
	}
	o := envoy.Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Processor: s.socket("extproc"), Seal: s.socket("seal"), Inner: s.socket("inner"), AccessLog: s.accessLog, EnvoyVersion: s.envoyVersion}
	for _, text := range []string{"full=http://" + s.stubAddr, "gone=http://" + s.nobody.LocalAddr().String()} {
		u, err := envoy.ParseUpstream(text)
		if err != nil {
			return nil, err
		}
		o.Upstreams = append(o.Upstreams, u)
	}
	return envoy.Bootstrap(snap, o)
}

// envoyListener asks Envoy for the port the kernel chose; "" until it listens.
func (s *demoStack) envoyListener(ctx context.Context) (string, error) {
	text, err := get(ctx, "http://"+s.envoyAdmin+"/listeners?format=json")
	if err != nil {
		return "", err
	}
	var l struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return "", fmt.Errorf("list of Envoy's listeners: %w", err)
	}
	if len(l.Statuses) == 0 || l.Statuses[0].Local.Socket.Port == 0 {
		return "", nil
	}
	at := l.Statuses[0].Local.Socket
	return net.JoinHostPort(at.Address, strconv.Itoa(at.Port)), nil
}

// until polls ok until it says yes; c must stay alive meanwhile. A nil c is not watched.
func (s *demoStack) until(ctx context.Context, c *child, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWait, fmt.Errorf("not so after %s", readyWait))
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if done, err := ok(); err != nil || done {
			return err
		}
		if c != nil && c.ended() {
			return c.unexpected()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop ends what runs, Envoy first so that nobody asks for the rest, and removes the folder. code is brownout's exit
// code. It may be called once, also when only some parts were started.
func (s *demoStack) stop() (code int, err error) {
	var errs []error
	if s.envoy != nil {
		_, err := s.envoy.stop()
		errs = append(errs, err)
	}
	if s.brownout != nil {
		code, err = s.brownout.stop()
		errs = append(errs, err)
	}
	if s.nobody != nil {
		errs = append(errs, s.nobody.Close())
	}
	if s.endStub != nil {
		errs = append(errs, s.endStub())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return code, errors.Join(errs...)
}

// dumpLogs prints the ends of the logs of the children there are.
func (s *demoStack) dumpLogs(w io.Writer) {
	for _, c := range []*child{s.brownout, s.envoy} {
		if c != nil {
			c.dump(w)
		}
	}
}
