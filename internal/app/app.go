// Package app wires brownout together: the command line, the life cycle of each command, and nothing else.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	ExitOK      = 0 // done
	ExitFailure = 1 // an assertion did not hold, or a run-time failure
	ExitUsage   = 2 // bad usage or a bad policy
)

// Stdio is where a command reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// exitError carries an exit code out of a command. A nil err means everything has been printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError marks err as bad usage or a bad policy: exit code 2.
func usageError(err error) error { return &exitError{ExitUsage, err} }

// silentExit ends with code after the command has said everything itself.
func silentExit(code int) error { return &exitError{code: code} }

// cli is the command line; each command lives in a file of its own.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run the external processor beside an Envoy."`
	Policy  policyCmd  `cmd:"" help:"Check a policy file, say what it makes of a request, or print its schema."`
	Envoy   envoyCmd   `cmd:"" help:"Render the Envoy configuration a policy needs."`
	Stub    stubCmd    `cmd:"" help:"Run a stub inference server that fails in the ways real ones do."`
	Load    loadCmd    `cmd:"" help:"Send a burst and assert what was admitted and shed."`
	Demo    demoCmd    `cmd:"" help:"Run stub, brownout and a real Envoy together and show what happens."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// Main runs one command and returns its exit code. It returns when ctx ends.
func Main(ctx context.Context, args []string, io Stdio) (code int) {
	var c cli
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("brownout"),
		kong.Description("Decides before the GPU is touched: who gets compute, at which tier, and by when."),
		kong.Writers(io.Out, io.Err),
		kong.Exit(func(n int) { exit = n }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(io),
	)
	if err != nil {
		fmt.Fprintf(io.Err, "brownout: %v\n", err)
		return ExitFailure
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exit >= 0 {
		return exit
	}
	if err != nil {
		complain(io.Err, err)
		return ExitUsage
	}
	return report(kctx.Run(), io.Err)
}

// complain says what is wrong with a command line, and whose help to read.
func complain(w io.Writer, err error) {
	text, command := err.Error(), "brownout"
	if p, ok := errors.AsType[*kong.ParseError](err); ok {
		for _, step := range p.Context.Path {
			if step.Command != nil {
				command = step.Command.FullPath()
			}
		}
	}
	if missing, ok := strings.CutPrefix(text, `expected "<`); ok { // kong means arguments, not words
		text = "missing argument: <" + strings.TrimSuffix(missing, `"`)
	}
	fmt.Fprintf(w, "brownout: %s\nRun \"%s --help\" to see what it takes.\n", text, command)
}

func report(err error, w io.Writer) int {
	if err == nil {
		return ExitOK
	}
	code := ExitFailure
	var ee *exitError
	if errors.As(err, &ee) {
		code = ee.code
		if ee.err == nil {
			return code
		}
	}
	fmt.Fprintf(w, "brownout: %v\n", err)
	return code
}
