package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/course"
)

// lineTimeout is how long a command line of a lab may take. The waits on the lab pages are
// shorter.
const lineTimeout = 2 * time.Minute

// labShell returns a function that runs a command line in a new shell. The shell first reads
// the env file of the lab in dir.
func labShell(dir lab.Dir) course.Shell {
	environment := append(os.Environ(), "LC_ALL=C.UTF-8")
	return func(ctx context.Context, line string) (string, int, error) {
		ctx, cancel := context.WithTimeout(ctx, lineTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", ". "+shellWord(dir.EnvFile())+"\n"+line) //nolint:gosec // the lines come from the project's own pages
		cmd.Env = environment
		cmd.WaitDelay = time.Second // for background processes that a line started
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

func (p *pupil) shell() course.Shell { return labShell(p.dir) }
