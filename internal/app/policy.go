package app

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/envoy-brownout/brownout/policy"
)

// policyCmd groups the commands that look at a policy file and at nothing else.
type policyCmd struct {
	Check   policyCheckCmd   `cmd:"" help:"Check policy files; exit 2 if one has an error."`
	Explain policyExplainCmd `cmd:"" help:"Say what a policy makes of one request, and why."`
	Schema  policySchemaCmd  `cmd:"" help:"Print the JSON Schema of the policy file."`
}

// policyCheckCmd reports every problem of every file, and per usable file one line about what it holds.
type policyCheckCmd struct {
	JSON  bool     `name:"json" help:"Print one JSON document on stdout instead of text."`
	Files []string `arg:"" name:"file" help:"Policy files; - is standard input."`
}

// checkedFile is the result of one file, as --json prints it.
type checkedFile struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Hash     string           `json:"hash,omitempty"`
	Tiers    int              `json:"tiers,omitempty"`
	Routes   int              `json:"routes,omitempty"`
	Problems []policy.Problem `json:"problems"`
}

// Run checks the files in order. Warnings leave the exit code at 0.
func (c *policyCheckCmd) Run(std Stdio) error {
	results := make([]checkedFile, 0, len(c.Files))
	ok := true
	for _, file := range c.Files {
		r := checkPolicy(file, std.In)
		ok = ok && r.OK
		results = append(results, r)
	}
	var err error
	if c.JSON {
		err = printJSON(std.Out, results)
	} else {
		err = printChecked(std, results)
	}
	if err == nil && !ok {
		return silentExit(ExitUsage)
	}
	return err
}

// checkPolicy parses one file. A file that cannot be read has one problem, without a position.
func checkPolicy(file string, stdin io.Reader) checkedFile {
	name := file
	if file == "-" {
		name = "<stdin>"
	}
	src, err := readPolicy(file, stdin)
	if err != nil {
		return checkedFile{File: name, Problems: []policy.Problem{{
			File: name, Severity: policy.SeverityError, Message: err.Error(),
		}}}
	}
	s, problems := policy.Parse(name, src)
	r := checkedFile{File: name, Problems: problems}
	if problems == nil {
		r.Problems = []policy.Problem{}
	}
	if s != nil {
		r.OK, r.Hash, r.Tiers, r.Routes = true, s.Hash, len(s.Tiers), len(s.Routes)
	}
	return r
}

// readPolicy reads a policy file, or stdin for "-". It stops one byte above the largest file the policy room
// reads, which then says how large a file may be.
func readPolicy(file string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, policy.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return src, nil
}

func printChecked(std Stdio, results []checkedFile) error {
	for _, r := range results {
		for _, p := range r.Problems {
			fmt.Fprintln(std.Err, p)
		}
		if !r.OK {
			continue
		}
		_, err := fmt.Fprintf(std.Out, "%s: ok: %s, %s, hash %s\n", r.File, count(r.Tiers, "tier"), count(r.Routes, "route"), r.Hash)
		if err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	return nil
}

// count renders a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// policySchemaCmd prints the JSON Schema.
type policySchemaCmd struct{}

// Run prints the schema on stdout.
func (c *policySchemaCmd) Run(std Stdio) error {
	if _, err := std.Out.Write(policy.Schema()); err != nil {
		return fmt.Errorf("print schema: %w", err)
	}
	return nil
}
