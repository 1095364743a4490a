package app

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/envoy-brownout/brownout/internal/loadgen"
)

// pageWidth is what words and bodies are broken at.
const pageWidth = 96

// page prints the demo and counts its checks. The first write error stays in err; nothing is written after it.
type page struct {
	w              io.Writer
	err            error
	colour         bool
	checks, failed int
}

func newPage(w io.Writer) *page {
	return &page{w: w, colour: isTerminal(w) && os.Getenv("NO_COLOR") == ""}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Colours by their SGR codes (ECMA-48).
const (
	bold  = "1"
	green = "32"
	red   = "31"
)

func (p *page) paint(sgr, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

func (p *page) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text)
	}
}

func (p *page) line(format string, args ...any) { p.write(fmt.Sprintf(format, args...) + "\n") }

// block prints text as it is, ending in one newline.
func (p *page) block(text string) { p.write(strings.TrimSuffix(text, "\n") + "\n") }

func (p *page) heading(text string) {
	p.line("\n%s\n%s\n", p.paint(bold, text), strings.Repeat("=", len(text)))
}

func (p *page) subheading(text string) { p.line("\n%s", p.paint(bold, text)) }

// words prints prose, broken between words.
func (p *page) words(text string) { p.write(wrap(text, "  ", "  ")) }

// wrap breaks text between words at pageWidth; a word that fits no line is broken anywhere.
func wrap(text, first, other string) string {
	var b strings.Builder
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		for len(other)+len(word) > pageWidth {
			if !empty {
				b.WriteString(line + "\n")
			}
			cut := pageWidth - len(other)
			b.WriteString(other + word[:cut] + "\n")
			line, empty, word = other, true, word[cut:]
		}
		if !empty && len(line)+1+len(word) > pageWidth {
			b.WriteString(line + "\n")
			line, empty = other, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	if !empty {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// quote prints what a program wrote, indented; lines that are too long are broken, between words where there are some.
func (p *page) quote(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for len(line) > pageWidth-4 {
			cut := pageWidth - 4
			if i := strings.LastIndexAny(line[:cut], " ,"); i > cut/2 {
				cut = i + 1
			}
			p.line("%s", strings.TrimRight("    "+line[:cut], " "))
			line = line[cut:]
		}
		p.line("%s", strings.TrimRight("    "+line, " "))
	}
}

// check prints one assertion and counts it.
func (p *page) check(c loadgen.Check) {
	p.checks++
	sgr := green
	if !c.OK {
		p.failed++
		sgr = red
	}
	text := wrap(c.String(), "  ", "      ")
	word, rest, _ := strings.Cut(strings.TrimPrefix(text, "  "), " ")
	space := strings.Repeat(" ", max(1, len("FAIL")-len(word))) // ok and FAIL lines begin in one column
	p.write("  " + p.paint(sgr, word) + space + strings.TrimLeft(rest, " "))
}

func (p *page) expect(ok bool, text string) { p.check(loadgen.Check{OK: ok, Text: text}) }

// report prints a load report in the seed's lines.
func (p *page) report(r loadgen.Report) {
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		p.err = err
		return
	}
	p.quote(b.String())
	p.line("")
}

// table prints the retry comparison. It is narrower than the one of "brownout load --compare".
func (p *page) table(c loadgen.Comparison) {
	row := func(cells ...any) {
		p.line("%s", strings.TrimRight(fmt.Sprintf("    %-14v %5v %7v %6v %6v   %-13v %-13v %v", cells...), " "))
	}
	row("", "", "", "", "model", "requests", "model calls", "most retries")
	row("retries", "sent", "served", "sheds", "calls", "per wave", "per wave", "within 50 ms")
	for _, r := range c.Rows {
		rep := r.Report
		row(r.Name, rep.Sent, fmt.Sprintf("%d/%d", rep.Admitted, rep.Users), rep.Sheds, optional(rep.Started), perWave(rep, false), perWave(rep, true), rep.RetryPeak)
	}
	p.line("")
}

func perWave(r loadgen.Report, upstream bool) string {
	var parts []string
	for _, w := range r.Waves {
		n := fmt.Sprint(w.Sent)
		if upstream {
			n = optional(w.Upstream)
		}
		parts = append(parts, n)
	}
	return strings.Join(parts, "/")
}

func optional(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
