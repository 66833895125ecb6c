package course

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Shell runs a command line. It returns the text that the command line wrote to stdout and stderr,
// and the exit code. It returns an error only if ctx ends, or if the shell cannot run or exceeds
// its time limits.
type Shell func(ctx context.Context, line string) (printed string, code int, err error)

const retryInterval = 250 * time.Millisecond

// Finding is the result of a check.
type Finding struct {
	Check
	Saw  string
	Good bool
}

// Print writes the finding as text. If the check failed, the text includes the actual and the
// expected output.
func (f Finding) Print(w io.Writer) {
	if f.Good {
		fmt.Fprintf(w, "✔ %s\n", f.Says)
		return
	}
	fmt.Fprintf(w, "✘ %s\n    ran       %s\n    saw       %s\n    expected  %s\n", f.Says, indentLines(f.Line), indentLines(f.Saw), indentLines(f.Want))
}

// indentLines indents all lines of s after the first line. It returns "nothing" if s is empty.
func indentLines(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return "nothing"
	}
	return strings.ReplaceAll(s, "\n", "\n              ")
}

// Verify runs the checks of a step. It repeats failed checks until all checks succeed or the
// timeout is over. It returns the last finding of each check. It returns an error only if sh
// returns an error or ctx ends.
func (s Step) Verify(ctx context.Context, sh Shell, timeout time.Duration) ([]Finding, error) {
	late := time.Now().Add(timeout)
	found := make([]Finding, len(s.Checks))
	for {
		for i, c := range s.Checks {
			if found[i].Good {
				continue
			}
			printed, code, err := sh(ctx, c.Line)
			if err != nil {
				return nil, err
			}
			found[i] = Finding{Check: c, Saw: printed, Good: c.Matches(printed) && c.Fails == (code != 0)}
		}
		if Good(found) || time.Now().After(late) {
			return found, nil
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// Good reports whether all checks succeeded.
func Good(found []Finding) bool {
	return !slices.ContainsFunc(found, func(f Finding) bool { return !f.Good })
}

// Run runs a command and returns its output. If c.Until is true, Run repeats the command until the
// result equals the expected result, or until the timeout has passed. If the last result differs,
// the error is a *Differs.
func (c Command) Run(ctx context.Context, sh Shell, timeout time.Duration) (printed string, err error) {
	late := time.Now().Add(timeout)
	for {
		printed, code, err := sh(ctx, c.Line)
		if err != nil {
			return printed, err
		}
		differs := c.differs(printed, code)
		if differs == nil || !c.Until || time.Now().After(late) {
			return printed, differs
		}
		if err := pause(ctx); err != nil {
			return printed, err
		}
	}
}

// Differs is the error that Run returns if the result of a command differs from the expected
// result.
type Differs struct {
	Command
	Saw  string
	Code int
}

func (d *Differs) Error() string {
	return fmt.Sprintf("$ %s\n    saw       %s\n    (exit code %d)\n    expected  %s", d.Line, indentLines(d.Saw), d.Code, indentLines(d.Want))
}

func (c Command) differs(printed string, code int) error {
	if c.Matches(printed) && c.Fails == (code != 0) {
		return nil
	}
	return &Differs{Command: c, Saw: printed, Code: code}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(retryInterval):
		return nil
	}
}
