package course

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Shell runs a command line and returns all that it printed, to either stream,
// and its exit code. The error is for a shell that does not run.
type Shell func(ctx context.Context, line string) (printed string, code int, err error)

// between is how often something is looked at that is not so yet.
const between = 250 * time.Millisecond

// Finding is what a check found.
type Finding struct {
	Check
	Saw  string
	Good bool
}

// Print tells a person what was found: if it is not good, what was seen and
// what was expected.
func (f Finding) Print(w io.Writer) {
	if f.Good {
		fmt.Fprintf(w, "✔ %s\n", f.Says)
		return
	}
	fmt.Fprintf(w, "✘ %s\n    ran       %s\n    saw       %s\n    expected  %s\n", f.Says, indent(f.Line), indent(f.Saw), indent(f.Want))
}

// indent is a text in a column of its own; "nothing" if it is empty.
func indent(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return "nothing"
	}
	return strings.ReplaceAll(s, "\n", "\n              ")
}

// Verify looks whether a step was done. It goes on looking for so long at what
// may still become so; the findings are those of the last look at each check.
// The error is sh's, or ctx's.
func (s Step) Verify(ctx context.Context, sh Shell, patience time.Duration) ([]Finding, error) {
	late := time.Now().Add(patience)
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

// Good reports whether everything was as expected.
func Good(found []Finding) bool {
	return !slices.ContainsFunc(found, func(f Finding) bool { return !f.Good })
}

// Run types a command and returns what it printed. One that may print something
// else at first is typed again for so long. An error that is a Differs says how
// it ended otherwise than its page shows.
func (c Command) Run(ctx context.Context, sh Shell, patience time.Duration) (printed string, err error) {
	late := time.Now().Add(patience)
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

// Differs says that a command did not do what its page shows.
type Differs struct {
	Command
	Saw  string
	Code int
}

func (d *Differs) Error() string {
	return fmt.Sprintf("$ %s\n    saw       %s\n    (exit code %d)\n    expected  %s", d.Line, indent(d.Saw), d.Code, indent(d.Want))
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
	case <-time.After(between):
		return nil
	}
}
