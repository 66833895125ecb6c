package course

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

var (
	terms    = regexp.MustCompile(`^(\d+) minutes · (hollow|real) nodes`)
	numbered = regexp.MustCompile(`^(\d+)\. `)
)

// Parse reads a lab from a page. The error joins all errors of the page, each with its line number.
func Parse(id string, src []byte) (Lab, error) {
	p := &parser{src: src, lab: Lab{ID: id}}
	for n := goldmark.New().Parser().Parse(text.NewReader(src)).FirstChild(); n != nil; n = n.NextSibling() {
		p.block(n)
	}
	p.endSection(len(src))
	p.check()
	for i, err := range p.errs {
		p.errs[i] = fmt.Errorf("%s.md:%w", id, err)
	}
	return p.lab, errors.Join(p.errs...)
}

// parser reads the blocks of a page from top to bottom.
type parser struct {
	src    []byte
	lab    Lab
	step   *Step  // nil outside of steps
	begin  int    // start of the current section
	hidden []span // parts of the section in <details>
	open   int    // start of an unclosed <details> plus 1, or 0
	errs   []error
}

// span is the range [from, to) of byte offsets in the page.
type span struct{ from, to int }

func (p *parser) bad(at int, format string, args ...any) {
	line := 1 + bytes.Count(p.src[:at], []byte("\n"))
	p.errs = append(p.errs, fmt.Errorf("%d: %w", line, fmt.Errorf(format, args...)))
}

func (p *parser) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		p.heading(n)
	case *ast.Paragraph:
		if m := terms.FindStringSubmatch(p.text(n)); m != nil && p.lab.Nodes == "" {
			p.lab.Minutes, _ = strconv.Atoi(m[1]) // cannot fail: the text is digits
			p.lab.Nodes = m[2]
		}
	case *ast.HTMLBlock:
		p.html(n)
	case *ast.FencedCodeBlock:
		if n.Info != nil {
			p.fence(strings.Fields(string(n.Info.Value(p.src))), n)
		}
	}
}

// text returns the source of a block without its fences.
func (p *parser) text(n ast.Node) string { return string(n.Lines().Value(p.src)) }

// start returns the offset of the line on which the content of a block begins.
func (p *parser) start(n ast.Node) int {
	at := n.Lines().At(0).Start
	return bytes.LastIndexByte(p.src[:at], '\n') + 1
}

func (p *parser) heading(n *ast.Heading) {
	title := p.text(n)
	if n.Level == 1 {
		p.lab.Title = title
	}
	if n.Level > 2 {
		return
	}
	p.endSection(p.start(n))
	p.begin = p.start(n)
	m := numbered.FindStringSubmatch(title)
	if n.Level == 1 || m == nil {
		return
	}
	if m[1] != strconv.Itoa(len(p.lab.Steps)+1) {
		p.bad(p.begin, "the heading has the number %s, but this is step %d", m[1], len(p.lab.Steps)+1)
	}
	p.step = &Step{Title: strings.TrimPrefix(title, m[0])}
}

// endSection ends the current section at the offset end. It stores the section as a step or as a
// part of the intro or outro.
func (p *parser) endSection(end int) {
	if p.open > 0 {
		p.bad(p.open-1, "<details> is not closed in its section")
		p.open = 0
	}
	text := p.visibleText(end)
	switch {
	case p.step != nil:
		p.step.Text = text
		p.lab.Steps = append(p.lab.Steps, *p.step)
		p.checkStep(*p.step)
	case len(p.lab.Steps) == 0:
		p.lab.Intro += text
	default:
		p.lab.Outro += text
	}
	p.step, p.hidden, p.begin = nil, nil, end
}

// visibleText returns the text of the current section up to the offset end, without the parts in
// <details>.
func (p *parser) visibleText(end int) string {
	var b strings.Builder
	at := p.begin
	for _, h := range append(p.hidden, span{end, end}) {
		if part := bytes.TrimSpace(p.src[at:h.from]); len(part) > 0 {
			b.Write(part)
			b.WriteString("\n\n")
		}
		at = h.to
	}
	return b.String()
}

// html records the positions of <details> and </details> at the beginning of lines.
func (p *parser) html(n *ast.HTMLBlock) {
	for i := range n.Lines().Len() {
		seg := n.Lines().At(i)
		line := seg.Value(p.src)
		switch {
		case bytes.HasPrefix(line, []byte("<details>")):
			if p.open > 0 {
				p.bad(seg.Start, "<details> inside of another <details>")
			}
			p.open = seg.Start + 1
		case bytes.HasPrefix(line, []byte("</details>")):
			if p.open == 0 {
				p.bad(seg.Start, "</details> without <details>")
				return
			}
			p.hidden = append(p.hidden, span{p.open - 1, seg.Stop})
			p.open = 0
		}
	}
}

// fence handles a fenced block according to the words of its info string.
func (p *parser) fence(words []string, n *ast.FencedCodeBlock) {
	if len(words) == 0 || n.Lines().Len() == 0 {
		return
	}
	at := p.start(n)
	if words[0] == "text" && slices.Contains(words[1:], "hint") {
		if p.step == nil {
			p.bad(at, "a hint outside of a step")
			return
		}
		p.step.Hint += p.text(n)
	}
	if words[0] != "console" {
		return
	}
	until, fails, use := false, false, ""
	for _, w := range words[1:] {
		switch w {
		case "until":
			until = true
		case "fails":
			fails = true
		case "begin", "verify", "solution", "reset":
			use = w
		default:
			p.bad(at, "unknown word %q after console: want until, fails, begin, verify, solution or reset", w)
		}
	}
	checks := p.parseCommands(at, p.text(n))
	for i := range checks {
		checks[i].Until, checks[i].Fails = until, fails
	}
	p.use(use, at, checks)
}

func (p *parser) use(use string, at int, checks []Check) {
	if (use == "verify" || use == "solution") && p.open == 0 {
		p.bad(at, "a %s block outside of <details>", use)
	}
	if use == "reset" {
		p.lab.Reset = append(p.lab.Reset, plain(checks)...)
		return
	}
	if use == "begin" {
		p.checkDescriptions(use, at, checks)
		p.lab.Begin = append(p.lab.Begin, checks...)
		return
	}
	if p.step == nil {
		p.bad(at, "a console block outside of a step would not be run")
		return
	}
	if use != "verify" {
		p.step.Do = append(p.step.Do, plain(checks)...)
		return
	}
	p.checkDescriptions(use, at, checks)
	p.step.Checks = append(p.step.Checks, checks...)
}

func (p *parser) checkDescriptions(use string, at int, checks []Check) {
	for _, c := range checks {
		if c.Says == "" {
			p.bad(at, "%s: %q needs a line with # that describes its output", use, c.Line)
		}
	}
}

func plain(checks []Check) []Command {
	commands := make([]Command, len(checks))
	for i, c := range checks {
		commands[i] = c.Command
	}
	return commands
}

// hereDoc matches the beginning of a here-document and captures the word that ends the
// here-document.
var hereDoc = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)

// parseCommands parses the text of a console block. The package comment describes the format.
func (p *parser) parseCommands(at int, terminal string) []Check {
	var all []Check
	says, until, more := "", "", false
	for line := range strings.Lines(terminal) {
		line = strings.TrimSuffix(line, "\n")
		last := len(all) - 1
		typed, isTyped := strings.CutPrefix(line, "$ ")
		statement, isSaid := strings.CutPrefix(line, "# ")
		switch {
		case more:
			all[last].Line += "\n" + line
			more = strings.HasSuffix(line, `\`)
		case until != "":
			all[last].Line += "\n" + line
			if strings.TrimSpace(line) == until {
				until = ""
			}
		case isTyped:
			all = append(all, Check{says, Command{Line: typed}})
			says, more = "", strings.HasSuffix(typed, `\`)
			if m := hereDoc.FindStringSubmatch(typed); m != nil {
				until = m[1]
			}
		case isSaid:
			says = statement
		case last < 0:
			p.bad(at, "console begins with %q: want a command after \"$ \"", line)
			return nil
		default:
			all[last].Want += line + "\n"
		}
	}
	if until != "" {
		p.bad(at, "no line %s ends the here-document", until)
	}
	return all
}

func (p *parser) check() {
	if p.lab.Title == "" {
		p.bad(0, "no title")
	}
	if p.lab.Nodes == "" {
		p.bad(0, `no line like "15 minutes · hollow nodes" below the title`)
	}
	if len(p.lab.Steps) == 0 {
		p.bad(0, `no step: want a heading like "## 1. Look around"`)
	}
	if len(p.lab.Reset) == 0 {
		p.bad(0, "no console block with the word reset")
	}
}

func (p *parser) checkStep(s Step) {
	switch {
	case len(s.Do) == 0:
		p.bad(p.begin, "step %q: no console block with commands", s.Title)
	case len(s.Checks) > 0 && s.Hint == "":
		p.bad(p.begin, "step %q: a verify block, but no hint", s.Title)
	}
}
