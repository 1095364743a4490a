package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/envoy-brownout/brownout/internal/engine"
	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// policyExplainCmd says what a policy makes of one request, and why.
type policyExplainCmd struct {
	Request string   `placeholder:"FILE|-" help:"A captured request: a request line, headers, an empty line and a body; or what curl -v prints; or HTTP/2 headers. The flags below change it."`
	Method  string   `placeholder:"METHOD" help:"Request method (POST)."`
	Path    string   `placeholder:"PATH" help:"Path with its query; required without --request."`
	Host    string   `placeholder:"HOST" help:"Host, or :authority; part of the keys."`
	Header  []string `sep:"none" placeholder:"NAME: VALUE" help:"A header; repeatable."`
	Body    string   `placeholder:"FILE|-" help:"The request's body; - is standard input."`
	Admin   string   `placeholder:"URL" help:"Base URL of the admin listener of a running brownout, to use its slots, queues and service times instead of an idle process's."`
	JSON    bool     `name:"json" help:"Print one JSON document instead of text."`
	File    string   `arg:"" name:"file" help:"Policy file; - is standard input."`
}

// maxExplained bounds a body and a captured request; Envoy's own bound is lower by default (--body-limit).
const maxExplained = 64 << 20

// Help is the second half of "brownout policy explain --help".
func (c *policyExplainCmd) Help() string {
	return `Says which route the request matches and why those before it do not, how long
it may take and which header says so, in which class it waits, why its body is
read, what each tier of the ladder would do now and what is changed of the
request for it, whether Envoy may repeat it, what its answer is kept under or
why it is not, and what it gets.

"Now" is a process that does nothing else, or with --admin one that is as busy
as that brownout is. What is in its store and how much of its retry budget is
spent is not asked.

Headers that Envoy takes from clients (x-tier, x-degraded*, x-brownout-*; from
outside its internal networks x-envoy-*) are read as they are given here.
Values of credentials, queries and idempotency keys are never printed.

  brownout policy explain policy.yaml --path /v1/chat/completions
    --header "authorization: Bearer x" --header "x-budget-ms: 800"
    --body request.json

  curl -sv ... 2>captured.txt
  brownout policy explain policy.yaml --request captured.txt --body request.json

The exit code is 0 also for a request that no route matches, 2 for flags or a
policy with errors, 1 if --admin cannot be asked.
`
}

// explained is the document of --json.
type explained struct {
	Policy     string           `json:"policy"`
	PolicyHash string           `json:"policy_hash"`
	Process    explainedAgainst `json:"process"`
	engine.Explanation
}

// explainedAgainst is the process the request meets.
type explainedAgainst struct {
	Admin      string `json:"admin,omitempty"` // "": an idle one
	PolicyHash string `json:"policy_hash,omitempty"`
	SamePolicy bool   `json:"same_policy"`
}

// Run explains the request.
func (c *policyExplainCmd) Run(ctx context.Context, std Stdio) error {
	r, err := c.request(std.In)
	admin, adminErr := adminURL(c.Admin)
	if err := errors.Join(err, adminErr); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(std.Err, "brownout: %s\n", line)
		}
		return silentExit(ExitUsage)
	}
	s, err := c.policy(std)
	if err != nil {
		return err
	}
	doc := explained{Policy: c.File, PolicyHash: s.Hash, Process: explainedAgainst{SamePolicy: true}}
	if admin != nil {
		state, err := readState(ctx, admin)
		if err != nil {
			return fmt.Errorf("explain: --admin %s: %w", admin.Redacted(), err)
		}
		doc.Process = explainedAgainst{admin.Redacted(), state.PolicyHash, state.PolicyHash == s.Hash}
		r.State = engineState(s, state)
	}
	doc.Explanation = engine.Explain(time.Now(), s, r)
	if c.JSON {
		return printJSON(std.Out, doc)
	}
	if _, err := io.WriteString(std.Out, explainText(doc)); err != nil {
		return fmt.Errorf("print explanation: %w", err)
	}
	return nil
}

// policy reads the policy and prints its problems.
func (c *policyExplainCmd) policy(std Stdio) (*policy.Snapshot, error) {
	src, err := readPolicy(c.File, std.In)
	if err != nil {
		return nil, usageError(err)
	}
	name := c.File
	if name == "-" {
		name = "<stdin>"
	}
	s, problems := policy.Parse(name, src)
	for _, p := range problems {
		fmt.Fprintln(std.Err, p)
	}
	if s == nil {
		return nil, silentExit(ExitUsage)
	}
	return s, nil
}

// request puts the request together: the captured one, changed by the flags. All problems are reported at once.
func (c *policyExplainCmd) request(stdin io.Reader) (engine.Case, error) {
	var out engine.Case
	if err := c.oneStdin(); err != nil {
		return out, err
	}
	var errs []error
	r := &out.Request
	if c.Request != "" {
		captured, err := readCapture(c.Request, stdin)
		out.Request, out.Body = captured.Request, captured.Body
		errs = append(errs, err)
	}
	if c.Method != "" {
		r.Method = c.Method
		errs = append(errs, checkMethod(c.Method))
	}
	if r.Method == "" {
		r.Method = "POST"
	}
	if c.Path != "" {
		r.Path = c.Path
		errs = append(errs, checkPath(c.Path))
	}
	if r.Path == "" && c.Request == "" {
		errs = append(errs, errors.New("--path is missing (give one such as --path /v1/chat/completions, or a captured request with --request FILE)"))
	}
	if c.Host != "" {
		r.Host = strings.ToLower(c.Host)
	}
	for i, text := range c.Header {
		h, err := parseHeader(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--header, the %s one: %w", ordinal(i+1), err))
			continue
		}
		r.Headers = append(r.Headers, h)
	}
	if c.Body != "" {
		body, err := readExplained("--body", c.Body, stdin)
		out.Body = body
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// oneStdin refuses two things from one standard input.
func (c *policyExplainCmd) oneStdin() error {
	var from []string
	for _, f := range [...]struct{ name, value string }{{"the policy file", c.File}, {"--request", c.Request}, {"--body", c.Body}} {
		if f.value == "-" {
			from = append(from, f.name)
		}
	}
	if len(from) > 1 {
		return fmt.Errorf("%s are all \"-\", and there is one standard input (write all but one of them to files)", strings.Join(from, " and "))
	}
	return nil
}

// readExplained reads what a flag names. A value that is plainly no file name is not repeated: it may hold a prompt.
func readExplained(flag, file string, stdin io.Reader) ([]byte, error) {
	if trimmed := strings.TrimSpace(file); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		return nil, fmt.Errorf("%s takes the name of a file, not its content (write it to a file, or pipe it to %s -)", flag, flag)
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w (give a file that can be read, or - for standard input)", flag, err)
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, maxExplained+1))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, file, err)
	}
	if len(src) > maxExplained {
		return nil, fmt.Errorf("%s %s: more than %d bytes (Envoy refuses such a request with 413)", flag, file, maxExplained)
	}
	return src, nil
}

func checkMethod(m string) error {
	if !isToken(m) || strings.ToUpper(m) != m {
		return fmt.Errorf("--method %q: not a request method (write one such as POST, in upper case)", m)
	}
	return nil
}

func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") {
		return fmt.Errorf("--path %q: does not begin with a slash (write the path alone, such as /v1/chat/completions, and the host as --host)", hideQuery(p))
	}
	if strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("--path %q: has a blank or a control character (encode it, as %%20)", hideQuery(p))
	}
	return nil
}

// hideQuery cuts a path at its query, which may hold a key, and takes a user's name and password off a URL.
func hideQuery(p string) string {
	p, _, _ = strings.Cut(p, "?")
	if at := strings.LastIndexByte(p, '@'); at >= 0 {
		scheme, _, ok := strings.Cut(p, "://")
		if p = p[at+1:]; ok {
			p = scheme + "://" + p
		}
	}
	return p
}

// parseHeader reads "name: value". Its errors repeat nothing that may be a credential.
func parseHeader(text string) (outcome.Header, error) {
	name, value, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return outcome.Header{}, errors.New(`has no colon (write "name: value")`)
	case name == "":
		return outcome.Header{}, errors.New(`is a pseudo header or has no name (use --method, --path and --host)`)
	case !isToken(name):
		return outcome.Header{}, errors.New(`has a character in its name that no name has (write "name: value")`)
	case strings.ContainsAny(value, "\r\n\x00"):
		return outcome.Header{}, fmt.Errorf("%s: its value has a line break (give each header a flag of its own)", name)
	}
	return outcome.Header{Name: strings.ToLower(name), Value: strings.Trim(value, " \t")}, nil
}

// isToken says whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && !strings.Contains("!#$%&'*+-.^_`|~", string(rune(c))) {
			return false
		}
	}
	return s != ""
}

func ordinal(n int) string {
	switch {
	case n%10 == 1 && n%100 != 11:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2 && n%100 != 12:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3 && n%100 != 13:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
