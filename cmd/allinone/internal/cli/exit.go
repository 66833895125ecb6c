package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// These are the exit codes for success, an incorrect command line, and an interruption. exitCodes
// contains the other exit codes.
const (
	ExitOK          = 0
	ExitUsage       = 2
	ExitInterrupted = 130
)

// exitCodes maps each Kind to its exit code. Scripts depend on these numbers, so do not
// change them.
var exitCodes = map[cloudsim.Kind]struct {
	code    int
	meaning string
}{
	cloudsim.Internal:        {1, "the command failed"},
	cloudsim.Invalid:         {ExitUsage, "the command line or the request is invalid"},
	cloudsim.NotFound:        {3, "the resource does not exist"},
	cloudsim.Exists:          {4, "a different resource already has the name or another unique value, or a file already exists"},
	cloudsim.Conflict:        {5, "the state of the resource does not permit the request"},
	cloudsim.Stale:           {6, "the resource changed after the command read it"},
	cloudsim.Unauthenticated: {7, "the token is missing or invalid"},
	cloudsim.Denied:          {8, "the token does not have the required permission"},
	cloudsim.Exhausted:       {9, "a quota, rate limit, address range, capacity or other maximum is exhausted"},
	cloudsim.Unavailable:     {10, "the cloud does not answer, or a time limit has expired"},
	cloudsim.Gone:            {11, "the cloud no longer stores the requested events"},
}

// ExitCode returns the exit code for an error of a command.
func ExitCode(err error) int {
	if errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return CodeOf(cloudsim.KindOf(err))
}

// CodeOf returns the exit code of a Kind.
func CodeOf(k cloudsim.Kind) int { return exitCodes[k].code }

// NoteStart changes cmd and its subcommands. Each command then sets *began to true before it calls
// its function Run or RunE. If *began is still false when a command returns an error, the command
// line contains a mistake.
func NoteStart(cmd *cobra.Command, began *bool) {
	switch run, plain := cmd.RunE, cmd.Run; {
	case run != nil:
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return run(cmd, args)
		}
	case plain != nil:
		cmd.Run = func(cmd *cobra.Command, args []string) {
			*began = true
			plain(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		NoteStart(sub, began)
	}
}

// NewExitCodesTopic returns a help topic that prints exitCodes.
func NewExitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command exits with one of these codes:\n\n")
	line := func(code int, meaning string) { fmt.Fprintf(&b, "  %3d  %s\n", code, meaning) }
	line(ExitOK, "the command succeeded")
	for code := range len(exitCodes) + 1 {
		for _, row := range exitCodes {
			if row.code == code {
				line(code, row.meaning)
			}
		}
	}
	line(ExitInterrupted, "the command was interrupted")
	return &cobra.Command{Use: "exit-codes", Short: "Meaning of the exit codes", Long: b.String()}
}

// ErrorsOf returns the text of each error that is joined in err. If err is a single error, the
// result contains only the text of err.
func ErrorsOf(err error) (all []string) {
	many := cloudsim.Joined(err)
	if many == nil {
		return []string{err.Error()}
	}
	for _, err := range many {
		all = append(all, ErrorsOf(err)...)
	}
	return all
}

// Explain prints an error for a user. It prints each joined error on a separate line. If a
// request has several invalid fields, it also prints each invalid field on a separate line.
func Explain(w io.Writer, path string, err error) {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(w, "%s: interrupted\n", path)
		return
	}
	if many := cloudsim.Joined(err); many != nil {
		for _, err := range many {
			Explain(w, path, err)
		}
		return
	}
	var e *cloudsim.Error
	if !errors.As(err, &e) || len(e.Fields) < 2 {
		fmt.Fprintf(w, "%s: %v\n", path, err)
		return
	}
	fmt.Fprintf(w, "%s: %d fields are invalid:\n", path, len(e.Fields))
	for _, f := range e.Fields {
		fmt.Fprintf(w, "  %s %s\n", f.Field, f.Reason)
	}
}
