package course

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// lineTimeout is the time limit of a command line of a lab. If a command on a lab page waits, its
// own timeout must be shorter. Otherwise lineTimeout ends the command before the command
// can report its own timeout.
const lineTimeout = 2 * time.Minute

// NewShell returns a Shell that runs each command line in a new /bin/sh, for at most lineTimeout.
// The new /bin/sh first runs the file envFile, which sets the environment variables for the user's
// cluster.
func NewShell(envFile string) Shell {
	environment := append(os.Environ(), "LC_ALL=C.UTF-8")
	return func(ctx context.Context, line string) (string, int, error) {
		ctx, cancel := context.WithTimeout(ctx, lineTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `. "$0"`+"\n"+line, envFile) //nolint:gosec // the lines come from the project's own pages
		cmd.Env = environment
		cmd.WaitDelay = time.Second // time limit for background processes that a line started
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if ctx.Err() != nil {
			return out.String(), 0, ctx.Err()
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return out.String(), exit.ExitCode(), nil
		}
		return out.String(), 0, err
	}
}
