// Package course reads steps from the pages in docs/labs. Here, a lab is an exercise with steps.
// Its page is the only source of its text and its commands. People read the page, `allinone lab`
// shows the steps of the page one by one, and a test runs the commands of the page.
//
// The package parses pages, compares outputs and stores the progress. It runs commands
// only through a Shell.
//
// # A page
//
//	# 1. Nodes and the taint          the title
//	15 minutes · hollow nodes         the duration, and the --nodes that the lab needs
//	## Why                            a section without a number is text only
//	## 1. Look around                 a step
//
// A step contains fenced blocks. The info string of a block, which is the text after the
// opening fence, gives the block its meaning:
//
//	console            commands, each after "$ ", with their outputs
//	console until      like console, but the expected output may appear late
//	console fails      like console, but the commands fail
//	console solution   the solution of the step's exercise; "until" and "fails" can follow
//	console verify     checks of the user's work; a "# " line above each command states its result
//	console begin      checks of the state that the lab needs at its beginning
//	console reset      commands that undo the lab; they work after each step
//	text hint          a hint
//
// If a line of a command ends with a backslash, the command continues on the next line. If a
// command begins a here-document, the command continues until the end of the here-document.
// Other blocks are text. `allinone lab` prints a step without the content of <details>, but
// readers of the page can open it. Put blocks with the word solution, verify or hint in <details>.
// Then `allinone lab` does not print them with the step.
//
// # Comparison of outputs
//
// "…" matches any text in a line. A line with only "…" matches any number of lines. The number
// of spaces between words does not matter. In console blocks, some values are only examples:
// ages, times, ids, addresses and the random end of a pod's name. In verify blocks, these
// values must be equal.
package course

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Lab is the content of one page.
type Lab struct {
	ID      string // file name without its extension, such as 01-nodes
	Title   string
	Minutes int
	Nodes   string // the kind of nodes that the lab needs: hollow or real
	Intro   string // Markdown above the first step
	Steps   []Step
	Outro   string // Markdown below the last step
	Begin   []Check
	Reset   []Command
}

// Step is a part of a lab that the course can verify.
type Step struct {
	Title  string
	Text   string    // Markdown for the reader, without the content of <details>
	Do     []Command // all commands of the step, in the order of the page
	Checks []Check   // empty if the step only shows something
	Hint   string
}

// Command is a command line with its expected result.
type Command struct {
	Line  string // for a shell; may have several lines
	Want  string // expected output
	Fails bool   // the exit code is not 0
	Until bool   // the expected output may appear later, so Run may repeat the command
}

// Check is a command that tests a statement.
type Check struct {
	Says string // the statement that is true if the command prints the expected output
	Command
}

// Read parses all files *.md in the file system pages, in the order of their names. The error joins
// the errors of all pages.
func Read(pages fs.FS) ([]Lab, error) {
	files, err := fs.Glob(pages, "*.md")
	if err != nil {
		return nil, err
	}
	var labs []Lab
	var errs []error
	for _, f := range files {
		src, err := fs.ReadFile(pages, f)
		if err != nil {
			return nil, err
		}
		lab, err := Parse(strings.TrimSuffix(f, ".md"), src)
		if err != nil {
			errs = append(errs, err)
		}
		labs = append(labs, lab)
	}
	return labs, errors.Join(errs...)
}

// Find returns the lab with the given id or number. The number may have leading zeros.
func Find(labs []Lab, name string) (Lab, error) {
	var ids []string
	for _, l := range labs {
		number, _, _ := strings.Cut(l.ID, "-")
		if name == l.ID || strings.TrimLeft(name, "0") == strings.TrimLeft(number, "0") {
			return l, nil
		}
		ids = append(ids, l.ID)
	}
	return Lab{}, fmt.Errorf("no lab is called %q: the labs are %s", name, strings.Join(ids, ", "))
}
