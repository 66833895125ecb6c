// Package course makes steps of the pages in docs/labs. A page is the only
// source: people read it, `allinone lab` leads through it, and a test walks it.
//
// It parses, compares and remembers. It runs nothing itself: commands are given
// to a Shell.
//
// # A page
//
//	# 1. Nodes and the taint          the title
//	15 minutes · hollow nodes         how long, and which --nodes it can be walked with
//	## Why                            sections without a number are read, not walked
//	## 1. Look around                 a step
//
// In a step, fenced blocks mean what their info string says:
//
//	console            commands, each after "$ ", and what they print
//	console until      the same; what they print may take a while to be so
//	console fails      the same; the commands fail
//	console solution   what does the exercise of the step; until and fails go with it
//	console verify     commands that look whether the step was done; "# " before one says what it shows
//	console begin      the same, of what the lab begins with
//	console reset      what undoes the whole lab, whatever of it was done
//	text hint          a hint
//
// A command goes on after a backslash at the end of its line, and to the end of a
// here-document. Other blocks are text. What is in <details> is for those who open it: a solution, a
// verify and a hint belong there, and a person at a terminal is not shown it.
//
// # What is printed
//
// "…" stands for anything in a line, and on a line of its own for any lines.
// Blanks are as wide as you like. In what console blocks show, ages, times, ids,
// addresses, and the random end of a pod's name are only examples; in what
// verify expects they are what they are.
package course

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Lab is one page.
type Lab struct {
	ID      string // the file's name without its end, such as 01-nodes
	Title   string
	Minutes int
	Nodes   string // which nodes it needs: hollow or real
	Intro   string // Markdown above the first step
	Steps   []Step
	Outro   string // Markdown below the last step
	Begin   []Check
	Reset   []Command
}

// Step is a part of a lab that can be verified.
type Step struct {
	Title  string
	Text   string    // Markdown that a person reads, without what is in <details>
	Do     []Command // all that is typed, in the page's order
	Checks []Check   // none: there is only something to see
	Hint   string
}

// Command is what a person types, and sees.
type Command struct {
	Line  string // for a shell; may be of several lines
	Want  string // what it prints
	Fails bool   // its exit code is not 0
	Until bool   // it may print something else at first, and can be typed again
}

// Check is a command that shows whether something is so.
type Check struct {
	Says string // what is so if it prints what is wanted
	Command
}

// Read parses all pages, in the order of their names. The error joins
// everything that is wrong with any.
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

// Find is the lab that a person calls by its id, or by its number, also without
// zeros.
func Find(labs []Lab, name string) (Lab, error) {
	var ids []string
	for _, l := range labs {
		number, _, _ := strings.Cut(l.ID, "-")
		if name == l.ID || strings.TrimLeft(name, "0") == strings.TrimLeft(number, "0") {
			return l, nil
		}
		ids = append(ids, l.ID)
	}
	return Lab{}, fmt.Errorf("no lab is called %q: there are %s", name, strings.Join(ids, ", "))
}
