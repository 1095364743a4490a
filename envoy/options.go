package envoy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/envoy-brownout/brownout/policy"
)

// Defaults of `brownout envoy bootstrap`.
const (
	DefaultProcessor  = "unix:/tmp/brownout/extproc.sock"    // where `brownout serve` listens by default
	DefaultSeal       = "unix:/tmp/brownout/seal.sock"       // where `brownout serve` seals by default
	DefaultInner      = "unix:/tmp/brownout/inner.sock"      // where Envoy listens for the seal by default
	DefaultAdmin      = "127.0.0.1:9901"                     // Envoy's admin listener, loopback only
	DefaultAccessLog  = "/dev/stdout"                        // one JSON object per line
	DefaultUpstreamCA = "/etc/ssl/certs/ca-certificates.crt" // authorities an https upstream is verified against
	DefaultBodyLimit  = 8 << 20                              // bytes of a request body that the plugin decides about
)

// Options are the addresses a bootstrap needs beside the policy.
type Options struct {
	Listen    string     // HOST:PORT of the listener; HOST is an IP address; port 0 lets the kernel choose
	Upstreams []Upstream // one or more for every tier of the policy
	Processor string     // unix:PATH or HOST:PORT of the plugin; empty means DefaultProcessor
	// ProcessorTLS is for a Processor on TCP; the zero value speaks to it in clear.
	ProcessorTLS ProcessorTLS
	// Seal is unix:PATH or HOST:PORT of the seal, on this machine; empty means DefaultSeal, "none" that no route is sealed.
	Seal string
	// Inner is unix:PATH or HOST:PORT where Envoy listens for the seal, on this machine; empty means DefaultInner. Whoever
	// can connect there reaches the upstreams past every limit.
	Inner string
	// SocketMode is the mode of Inner's Unix socket; 0 means 0600, which lets in a seal of the same user.
	SocketMode uint32
	Admin      string // HOST:PORT of Envoy's admin listener; empty means none
	AccessLog  string // path of the access log; empty means none
	// UpstreamCA is the PEM file an https upstream's certificate is verified against; empty means
	// DefaultUpstreamCA. It is a path on Envoy's machine and is not read here.
	UpstreamCA string
	// Internal are networks, as CIDR, whose requests Envoy marks x-envoy-internal; `priority.trust: internal` and
	// the timeouts of Envoys in front rest on that. Empty: nobody is internal.
	Internal []string
	// EnvoyVersion is the Envoy the configuration is for, as MAJOR.MINOR or MAJOR.MINOR.PATCH; empty means 1.37 or
	// newer.
	EnvoyVersion string
	// BodyLimit is the largest request body, in bytes, on routes whose requests are decided about with their body; a
	// larger one is answered 413. 0 means DefaultBodyLimit. Other routes take bodies of any size.
	BodyLimit int64
}

// Scheme says how an upstream is spoken to.
type Scheme uint8

// The schemes; the zero value is plain HTTP/1.1.
const (
	SchemeHTTP  Scheme = iota // HTTP/1.1 in clear
	SchemeH2C                 // HTTP/2 in clear, prior knowledge
	SchemeHTTPS               // TLS, HTTP/2 or HTTP/1.1 as ALPN decides
)

// schemes names the schemes as they are written in an upstream.
var schemes = map[string]Scheme{"http": SchemeHTTP, "h2c": SchemeH2C, "https": SchemeHTTPS}

// Upstream is one endpoint of a tier.
type Upstream struct {
	Tier   string
	Scheme Scheme
	Host   string // name or IP address, an IPv6 address without brackets
	Port   uint16
}

// OptionError says what is wrong with one option. Bootstrap joins one per problem.
type OptionError struct {
	Option  string // listen, upstream, processor, seal, inner, envoy-admin, …: the command's flag without its dashes
	Value   string // as given; empty when the option is missing
	Problem string
	Remedy  string
}

// Error names the option, the value, the problem and the remedy.
func (e *OptionError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s (%s)", e.Option, e.Problem, e.Remedy)
	}
	return fmt.Sprintf("%s %q: %s (%s)", e.Option, e.Value, e.Problem, e.Remedy)
}

// ParseUpstream reads TIER=[http|h2c|https]://HOST:PORT; without a scheme it is http. The error is an *OptionError.
func ParseUpstream(s string) (Upstream, error) {
	bad := func(problem, remedy string) (Upstream, error) {
		return Upstream{}, &OptionError{Option: "upstream", Value: s, Problem: problem, Remedy: remedy}
	}
	tier, rest, ok := strings.Cut(s, "=")
	if !ok || tier == "" {
		return bad("no tier named", "write TIER=http://HOST:PORT")
	}
	u := Upstream{Tier: tier}
	if scheme, after, ok := strings.Cut(rest, "://"); ok {
		if u.Scheme, ok = schemes[scheme]; !ok {
			return bad(fmt.Sprintf("unknown scheme %q", scheme), "use http, h2c or https")
		}
		rest = after
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, "/?#@") {
		return bad("more than an address", "leave path, query and credentials out: Envoy passes the caller's path on")
	}
	host, port, err := splitHostPort(rest)
	if err != nil {
		return bad(err.Error(), fmt.Sprintf("write %s=http://HOST:PORT", tier))
	}
	if port == 0 {
		return bad("port 0 cannot be reached", "name the port the upstream listens on")
	}
	u.Host, u.Port = host, port
	return u, nil
}

// address is where something listens: a Unix socket if path is set, else host and port.
type address struct {
	path string
	host string
	port uint16
}

// isIP reports whether the host is an address rather than a name to resolve. A Unix socket needs no resolving.
func (a address) isIP() bool {
	_, err := netip.ParseAddr(a.host)
	return a.path != "" || err == nil
}

// parsed is Options after checking.
type parsed struct {
	Options
	listen, processor address
	admin             *address // nil: none
	seal              *address // nil: no route is sealed
	inner             address
	socketMode        uint32
	upstreams         map[string][]Upstream // by tier, in the order given
	internal          []netip.Prefix
	runtime           map[string]bool // Envoy's reloadable features to set
}

// parse checks o against s and returns all problems joined.
func (o Options) parse(s *policy.Snapshot) (*parsed, error) {
	p := &parsed{Options: o}
	if p.Processor == "" {
		p.Processor = DefaultProcessor
	}
	if p.UpstreamCA == "" {
		p.UpstreamCA = DefaultUpstreamCA
	}
	var errs []error
	var err error
	if err := p.parseSeal(); err != nil {
		errs = append(errs, err)
	}
	if err := p.parseBodyLimit(); err != nil {
		errs = append(errs, err)
	}
	if p.listen, err = parseBind("listen", o.Listen); err != nil {
		errs = append(errs, err)
	}
	if p.processor, err = parsePeer("processor", "--listen", p.Processor); err != nil {
		errs = append(errs, err)
	} else if err := p.checkProcessorTLS(); err != nil {
		errs = append(errs, err)
	}
	if o.Admin != "" {
		admin, err := parseBind("envoy-admin", o.Admin)
		if err != nil {
			errs = append(errs, err)
		}
		p.admin = &admin
	}
	if p.internal, err = parseNetworks(o.Internal); err != nil {
		errs = append(errs, err)
	}
	if p.runtime, err = versionRuntime(o.EnvoyVersion); err != nil {
		errs = append(errs, err)
	}
	p.upstreams, err = groupUpstreams(s, o.Upstreams)
	if err != nil {
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

// parseBind reads an address Envoy itself listens on, which must be an IP address.
func parseBind(option, s string) (address, error) {
	const remedy = "write IP:PORT, for example 127.0.0.1:8080 or [::]:8080"
	host, port, err := splitHostPort(s)
	if err != nil {
		return address{}, &OptionError{option, s, err.Error(), remedy}
	}
	a := address{host: host, port: port}
	if !a.isIP() {
		return address{}, &OptionError{option, s, fmt.Sprintf("%q is not an IP address", host), remedy}
	}
	return a, nil
}

// maxSocketPath is the longest Unix socket path Linux takes: sun_path is 108 bytes with its final zero.
const maxSocketPath = 107

// parsePeer reads the address of something of brownout's, as given to the flag of `brownout serve`.
func parsePeer(option, flag, s string) (address, error) {
	bad := func(problem, remedy string) (address, error) {
		return address{}, &OptionError{option, s, problem, remedy}
	}
	given := fmt.Sprintf(", as given to `brownout serve %s`", flag)
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		switch {
		case !filepath.IsAbs(path):
			return bad("the socket path is not absolute", "write unix:/PATH"+given)
		case len(path) > maxSocketPath:
			return bad(fmt.Sprintf("the socket path has %d bytes", len(path)), fmt.Sprintf("keep it within %d bytes", maxSocketPath))
		}
		return address{path: path}, nil
	}
	host, port, err := splitHostPort(s)
	if err != nil {
		return bad(err.Error(), "write unix:/PATH or HOST:PORT"+given)
	}
	if port == 0 {
		return bad("port 0 cannot be reached", "name the port `brownout serve` listens on")
	}
	return address{host: host, port: port}, nil
}

// splitHostPort is net.SplitHostPort with a numeric port and a host that may not be empty.
func splitHostPort(s string) (host string, port uint16, err error) {
	host, portText, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errors.New("not an address with a port")
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n") {
		return "", 0, errors.New("no usable host")
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", portText)
	}
	return host, uint16(n), nil
}

// groupUpstreams sorts endpoints by tier and requires at least one, of one scheme, for every model tier.
func groupUpstreams(s *policy.Snapshot, list []Upstream) (map[string][]Upstream, error) {
	byTier := make(map[string][]Upstream)
	var names []string
	for _, t := range s.Tiers {
		if t.Model != nil {
			byTier[t.Name], names = nil, append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("the policy has no model tier: there is nothing to route to")
	}
	var errs []error
	for _, u := range list {
		given := u.String()
		have, known := byTier[u.Tier]
		switch {
		case !known:
			errs = append(errs, &OptionError{"upstream", given, fmt.Sprintf("the policy has no model tier %q", u.Tier), "its tiers: " + strings.Join(names, ", ")})
		case len(have) > 0 && have[0].Scheme != u.Scheme:
			errs = append(errs, &OptionError{"upstream", given, "another endpoint of this tier has another scheme", "give all endpoints of one tier one scheme"})
		default:
			byTier[u.Tier] = append(have, u)
		}
	}
	for _, name := range names {
		if len(byTier[name]) == 0 {
			errs = append(errs, &OptionError{"upstream", "", fmt.Sprintf("tier %q has no upstream", name), fmt.Sprintf("add --upstream %s=http://HOST:PORT", name)})
		}
	}
	return byTier, errors.Join(errs...)
}

// String is the form ParseUpstream reads.
func (u Upstream) String() string {
	scheme := "http"
	for name, s := range schemes {
		if s == u.Scheme {
			scheme = name
		}
	}
	return u.Tier + "=" + scheme + "://" + net.JoinHostPort(u.Host, strconv.Itoa(int(u.Port)))
}
