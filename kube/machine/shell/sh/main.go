// Command sh is a shell for POSIX and Bash syntax, based on the interpreter mvdan.cc/sh. For
// OPTION, the shell accepts the options of its builtin "set", for example -e. Without COMMAND and
// FILE, the shell reads commands from stdin.
//
//	sh [OPTION...] [-c COMMAND [NAME] | FILE] [ARGUMENT...]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/term"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

func main() {
	err := run(os.Args[1:])
	var status interp.ExitStatus
	if errors.As(err, &status) {
		os.Exit(int(status))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sh:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	options, hasCommand, args := parse(args)
	var in io.Reader = os.Stdin
	name := "sh"
	switch {
	case hasCommand && len(args) == 0:
		return errors.New("-c needs a command")
	case hasCommand:
		in, args = strings.NewReader(args[0]), args[1:]
		if len(args) > 0 {
			name, args = args[0], args[1:]
		}
	case len(args) > 0:
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		in, name, args = f, args[0], args[1:]
	}
	r, err := interp.New(interp.StdIO(os.Stdin, os.Stdout, os.Stderr), interp.ExecHandlers(runToEnd),
		interp.Params(append(append(options, "--"), args...)...))
	if err != nil {
		return err
	}
	if in == os.Stdin && term.IsTerminal(int(os.Stdin.Fd())) {
		return interactive(r)
	}
	program, err := syntax.NewParser().Parse(in, name)
	if err != nil {
		return err
	}
	return r.Run(context.Background(), program)
}

// parse splits the options from the other arguments, and reports whether -c is one of the options.
// The option -i has no effect, because the shell is interactive only if stdin is a terminal. The
// option -l has no effect, because the shell reads no startup files.
func parse(args []string) (options []string, hasCommand bool, rest []string) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		option := args[0]
		args = args[1:]
		if option == "--" {
			break
		}
		if strings.HasPrefix(option, "--") { // a long option, which the interpreter refuses
			options = append(options, option)
			continue
		}
		hasCommand = hasCommand || strings.Contains(option, "c")
		option = strings.NewReplacer("c", "", "i", "", "l", "").Replace(option)
		if option != "-" {
			options = append(options, option)
		}
		if strings.HasSuffix(option, "o") && len(args) > 0 { // the option's name follows
			options, args = append(options, args[0]), args[1:]
		}
	}
	return options, hasCommand, args
}

// The function interactive runs commands from the terminal until the user types exit or ends the
// input.
func interactive(r *interp.Runner) error {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // Ctrl-C ends a command, not the shell
	for {
		fmt.Print("$ ")
		parser, failed := syntax.NewParser(), false
		for statements, err := range parser.InteractiveSeq(os.Stdin) {
			if failed = err != nil; failed {
				fmt.Fprintln(os.Stderr, "sh:", err)
				break
			}
			if parser.Incomplete() {
				fmt.Print("> ")
				continue
			}
			if exited, err := runLine(r, statements); exited {
				return err
			}
			fmt.Print("$ ")
		}
		if !failed {
			return nil
		}
	}
}

// runLine runs the statements of a line. Ctrl-C ends the line. runLine reports whether the shell
// must end. If a program cannot run, runLine prints the reason, and the shell continues.
func runLine(r *interp.Runner, statements []*syntax.Stmt) (exited bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, s := range statements {
		err := r.Run(ctx, s)
		var status interp.ExitStatus
		switch {
		case ctx.Err() != nil:
			fmt.Println() // the terminal has shown ^C
			return false, nil
		case err != nil && !errors.As(err, &status):
			fmt.Fprintln(os.Stderr, "sh:", err)
		case r.Exited():
			return true, err
		}
	}
	return false, nil
}

// runToEnd returns a handler that does not kill a program after Ctrl-C. The terminal sends the
// signal directly to the program. So the program decides how it handles the signal.
func runToEnd(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	return func(ctx context.Context, args []string) error { return next(context.WithoutCancel(ctx), args) }
}
