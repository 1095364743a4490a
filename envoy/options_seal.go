package envoy

import (
	"errors"
	"fmt"
	"net/netip"
)

// none turns an optional part off.
const none = "none"

// defaultSocketMode lets in processes of the same user.
const defaultSocketMode = 0o600

// parseSeal fills in the addresses of the sealed way and returns all problems joined. Both ends are on one machine: the
// seal repairs only answers whose session is in its own process, and the inner listener lets everybody in.
func (p *parsed) parseSeal() error {
	if p.Seal == "" {
		p.Seal = DefaultSeal
	}
	if p.Inner == "" {
		p.Inner = DefaultInner
	}
	if p.socketMode = p.SocketMode; p.socketMode == 0 {
		p.socketMode = defaultSocketMode
	}
	var errs []error
	if p.socketMode > 0o777 {
		errs = append(errs, &OptionError{"socket-mode", fmt.Sprintf("%o", p.SocketMode), "not the mode of a socket", "write an octal mode such as 0600 or 0660"})
	}
	if p.Seal == none {
		return errors.Join(errs...)
	}
	seal, err := parsePeer("seal", "--seal", p.Seal)
	if err == nil {
		err = checkLocal("seal", p.Seal, seal)
	}
	if err != nil {
		errs = append(errs, err)
	}
	p.seal = &seal
	if p.inner, err = parsePeer("inner", "--inner", p.Inner); err == nil {
		err = checkLocal("inner", p.Inner, p.inner)
	}
	if err == nil && p.inner == seal {
		err = &OptionError{"inner", p.Inner, "this is where the seal listens", "give Envoy and the seal an address each"}
	}
	if err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkLocal refuses an address that other machines reach, or that Envoy cannot bind.
func checkLocal(option, given string, a address) error {
	if a.path != "" {
		return nil
	}
	if ip, err := netip.ParseAddr(a.host); err != nil || !ip.IsLoopback() {
		return &OptionError{option, given, fmt.Sprintf("%q is not an address of this machine alone", a.host), "write unix:/PATH or 127.0.0.1:PORT"}
	}
	return nil
}
