package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// demoClient is a real HTTP client that is no part of brownout: curl, or where there is none a few lines of Python.
type demoClient struct {
	name string // curl or python3
	bin  string
	h2   bool
}

// clientWait bounds one request of the client.
const clientWait = 30 * time.Second

// findDemoClient prefers curl. Python's standard library speaks HTTP/1.1 only.
func findDemoClient(h2 bool) (demoClient, error) {
	if bin, err := exec.LookPath("curl"); err == nil {
		out, err := exec.Command(bin, "--version").Output()
		if err == nil && (!h2 || strings.Contains(string(out), "HTTP2")) {
			return demoClient{name: "curl", bin: bin, h2: h2}, nil
		}
	}
	if h2 {
		return demoClient{}, errors.New("--h2 needs a curl with HTTP/2 on PATH (leave --h2 out, or install one)")
	}
	bin, err := exec.LookPath("python3")
	if err != nil {
		return demoClient{}, errors.New("neither curl nor python3 is on PATH: the demo shows what a real client sees (install one)")
	}
	return demoClient{name: "python3", bin: bin}, nil
}

// postScript is the client where there is no curl. It prints what curl -i prints and ends with curl's codes.
const postScript = `import http.client, sys
from urllib.parse import urlsplit

url = urlsplit(sys.argv[1])
conn = http.client.HTTPConnection(url.hostname, url.port, timeout=25)
conn.request("POST", url.path, "{}", dict(line.split(": ", 1) for line in sys.argv[2:]))
resp = conn.getresponse()
print("HTTP/1.1", resp.status, resp.reason)
for name, value in resp.getheaders():
    print(name + ": " + value)
print()
try:
    print(resp.read().decode())
except http.client.IncompleteRead as cut:
    print(cut.partial.decode())
    print("http.client.IncompleteRead: the answer was cut", file=sys.stderr)
    sys.exit(18)
`

// args is the command line after the program's name. dir holds the script.
func (c demoClient) args(dir, url string, headers []string) []string {
	if c.name != "curl" {
		return append([]string{filepath.Join(dir, "post.py"), url}, headers...)
	}
	args := []string{"-sS", "-i", "-d", "{}"}
	if c.h2 {
		// No body: an answer that is whole before the body has come is followed by RST_STREAM(NO_ERROR), as RFC 9113
		// §8.1 has it, and curl 7.88 then loses the answer now and then.
		args = []string{"-sS", "-i", "--http2-prior-knowledge", "-X", "POST"}
	}
	for _, h := range headers {
		args = append(args, "-H", h)
	}
	return append(args, url)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:$=-]+$`)

// commandLine is what a person types for the same, given the variable ENVOY. It is broken where the shell allows.
func (c demoClient) commandLine(path string, headers []string) string {
	text, col := c.name, len(c.name)
	for _, w := range c.args("", "$ENVOY"+path, headers) {
		if !plainWord.MatchString(w) {
			w = "'" + w + "'"
		}
		if col+1+len(w) > pageWidth-6 {
			text, col = text+" \\\n     ", 5
		}
		text, col = text+" "+w, col+1+len(w)
	}
	return text
}

// clientAnswer is what the client printed and how it ended.
type clientAnswer struct {
	line    string // status line
	status  int
	headers [][2]string // in order, names in lower case
	body    string
	stderr  string
	exit    int
}

// header is the value of a header, "" if it is absent.
func (a clientAnswer) header(name string) string {
	for _, h := range a.headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// send runs the client. An error means that it could not be run; whatever it met is in the answer.
func (c demoClient) send(ctx context.Context, dir, url string, headers []string) (clientAnswer, error) {
	if c.name != "curl" {
		if err := os.WriteFile(filepath.Join(dir, "post.py"), []byte(postScript), 0o644); err != nil {
			return clientAnswer{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, clientWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.bin, c.args(dir, url, headers)...)
	cmd.Env = clientEnv(os.Environ())
	if c.name == "curl" {
		cmd.Env = append(cmd.Env, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "CURL_HOME="+dir) // no .curlrc changes what is shown
	}
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		return clientAnswer{}, fmt.Errorf("run %s: %w", c.name, errors.Join(err, context.Cause(ctx)))
	}
	a, err := parseAnswer(out.String())
	a.stderr, a.exit = msg.String(), cmd.ProcessState.ExitCode()
	if err != nil {
		return a, fmt.Errorf("%s, exit code %d: %w\n%s", c.name, a.exit, err, a.stderr)
	}
	return a, nil
}

// clientEnv leaves proxies out: everything is on this machine.
func clientEnv(env []string) []string {
	var kept []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			kept = append(kept, e)
		}
	}
	return kept
}

// parseAnswer reads a status line, headers and a body as curl -i prints them.
func parseAnswer(text string) (clientAnswer, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	head, body, ok := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	fields := strings.Fields(lines[0])
	if !ok || len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/") {
		return clientAnswer{}, fmt.Errorf("no HTTP answer in %q", text)
	}
	a := clientAnswer{line: strings.TrimSpace(lines[0]), body: body}
	var err error
	if a.status, err = strconv.Atoi(fields[1]); err != nil {
		return a, fmt.Errorf("status line %q: %w", a.line, err)
	}
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ":")
		a.headers = append(a.headers, [2]string{strings.ToLower(name), strings.TrimSpace(value)})
	}
	return a, nil
}
