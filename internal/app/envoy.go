package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/policy"
)

// envoyCmd groups the commands that write Envoy configuration.
type envoyCmd struct {
	Bootstrap envoyBootstrapCmd `cmd:"" help:"Print a complete Envoy configuration for a policy."`
}

// none switches an optional part of the configuration off.
const none = "none"

// envoyBootstrapCmd renders a policy and a set of addresses as an Envoy configuration on stdout.
type envoyBootstrapCmd struct {
	Policy     string   `required:"" placeholder:"FILE" help:"Policy file; - is standard input."`
	Listen     string   `required:"" placeholder:"IP:PORT" help:"Where Envoy listens for clients."`
	Upstream   []string `required:"" sep:"none" placeholder:"TIER=[http|h2c|https]://HOST:PORT" help:"An endpoint of a tier; at least one for every tier of the policy."`
	Processor  string   `default:"unix:/tmp/brownout/extproc.sock" placeholder:"unix:PATH|HOST:PORT" help:"Where \"brownout serve\" listens (${default})."`
	ProcCA     string   `name:"processor-ca" placeholder:"PATH" help:"For a --processor on TCP: PEM authorities of its certificate; goes with the next two."`
	ProcCert   string   `name:"processor-cert" placeholder:"PATH" help:"Envoy's certificate (PEM) for it."`
	ProcKey    string   `name:"processor-key" placeholder:"PATH" help:"The certificate's private key (PEM)."`
	Seal       string   `default:"unix:/tmp/brownout/seal.sock" placeholder:"unix:PATH|IP:PORT|none" help:"Where \"brownout serve\" seals; none seals no route (${default})."`
	Inner      string   `default:"unix:/tmp/brownout/inner.sock" placeholder:"unix:PATH|IP:PORT" help:"Where Envoy listens for the seal (${default})."`
	SocketMode string   `default:"0600" placeholder:"MODE" help:"Mode of the --inner socket, octal; 0660 or 0666 for a brownout under another user (${default})."`
	EnvoyAdmin string   `default:"127.0.0.1:9901" placeholder:"IP:PORT|none" help:"Envoy's admin listener (${default})."`
	AccessLog  string   `default:"/dev/stdout" placeholder:"PATH|none" help:"Envoy's access log, one JSON object per line (${default})."`
	UpstreamCA string   `name:"upstream-ca" default:"/etc/ssl/certs/ca-certificates.crt" placeholder:"PATH" help:"PEM authorities that https upstreams are verified against (${default})."`
	BodyLimit  int64    `name:"body-limit" default:"8388608" placeholder:"BYTES" help:"Largest request body on routes that need it, in bytes; above it callers get 413. Give \"brownout serve\" the same (${default})."`
	Internal   []string `sep:"," placeholder:"CIDR" help:"Networks whose requests are internal: priority.trust internal and timeouts of Envoys in front rest on it (none)."`
	Version    string   `name:"envoy-version" placeholder:"1.MINOR" help:"The Envoy this is for; needed for 1.36 (1.37 or newer)."`
}

// Run prints the configuration. Bad flags and a policy with errors end with ExitUsage, all of them reported at once.
func (c *envoyBootstrapCmd) Run(std Stdio) error {
	src, err := readPolicy(c.Policy, std.In)
	if err != nil {
		return usageError(err)
	}
	snapshot, problems := policy.Parse(c.Policy, src)
	for _, p := range problems {
		fmt.Fprintln(std.Err, p)
	}
	if snapshot == nil {
		return silentExit(ExitUsage)
	}
	options, bad := c.options()
	out, err := envoy.Bootstrap(snapshot, options)
	if err = errors.Join(bad, err); err != nil {
		return reportOptions(std, err)
	}
	if _, err := std.Out.Write(out); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return nil
}

// options reads the flags. With an error what could not be read has a stand-in, so that the rest can still be checked.
func (c *envoyBootstrapCmd) options() (envoy.Options, error) {
	o := envoy.Options{
		Listen:     c.Listen,
		Processor:  c.Processor,
		Admin:      unlessNone(c.EnvoyAdmin),
		AccessLog:  unlessNone(c.AccessLog),
		UpstreamCA: c.UpstreamCA,
		Internal:   c.Internal, EnvoyVersion: c.Version,
		Seal: c.Seal, Inner: c.Inner, BodyLimit: c.BodyLimit,
		ProcessorTLS: envoy.ProcessorTLS{CA: c.ProcCA, Cert: c.ProcCert, Key: c.ProcKey},
	}
	var errs []error
	mode, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err != nil || mode == 0 {
		errs = append(errs, &envoy.OptionError{Option: "socket-mode", Value: c.SocketMode, Problem: "not an octal mode", Remedy: "write one such as 0600 or 0660"})
	}
	o.SocketMode = uint32(mode)
	for _, text := range c.Upstream {
		u, err := envoy.ParseUpstream(text)
		if err != nil {
			errs = append(errs, err)
			tier, _, ok := strings.Cut(text, "=")
			if !ok || tier == "" {
				continue
			}
			u = envoy.Upstream{Tier: tier, Host: "127.0.0.1", Port: 1}
		}
		o.Upstreams = append(o.Upstreams, u)
	}
	return o, errors.Join(errs...)
}

func unlessNone(s string) string {
	if s == none {
		return ""
	}
	return s
}

// reportOptions prints every joined error on a line of its own, naming the flag it is about.
func reportOptions(std Stdio, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			reportOptions(std, e)
		}
		return silentExit(ExitUsage)
	}
	flag := ""
	if _, ok := errors.AsType[*envoy.OptionError](err); ok {
		flag = "--"
	}
	fmt.Fprintf(std.Err, "brownout: %s%v\n", flag, err)
	return silentExit(ExitUsage)
}
