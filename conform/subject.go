package conform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Subject is a CCM that this package starts and kills.
type Subject interface {
	// Start starts the CCM. It does not wait until the CCM is ready. The CCM runs until Kill.
	Start(context.Context) error
	// Kill ends the CCM immediately, without a chance to finish its work. It returns when the CCM
	// has ended. It returns nil if the CCM does not run.
	Kill() error
	// Ended returns an error if the CCM has ended by itself.
	Ended() error
}

// Command is a CCM in a separate process. On Linux, the kernel kills this process when the process
// that called Start ends.
type Command struct {
	// Line is a command for sh(1). When the process that called Start ends, the kernel kills only
	// the shell. The last command in Line should therefore begin with exec, so that the shell
	// replaces itself with the program of this command.
	Line string
	// Env contains additional environment variables in the form NAME=VALUE.
	Env []string
	// Log is the path of a file. The CCM appends its output to this file.
	Log string

	process *exec.Cmd
	ended   chan struct{}
	err     error // Start sets err before it closes ended
}

// Replica implements Replicable. It sets the environment variable CONFORM_LEADER_ELECT of the
// replica to true.
func (c *Command) Replica() Subject {
	return &Command{Line: c.Line, Env: append(slices.Clone(c.Env), "CONFORM_LEADER_ELECT=true"), Log: c.Log}
}

// Start implements Subject.
func (c *Command) Start(context.Context) error {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p := exec.Command("sh", "-c", c.Line) //nolint:gosec,noctx // the user's command; Kill ends it
	p.Env = append(os.Environ(), c.Env...)
	p.Stdout, p.Stderr = log, log
	ownGroup(p) // so that Kill reaches all processes of Line
	result, err := startProcess(p)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	c.process, c.ended = p, make(chan struct{})
	go func(ended chan struct{}) {
		c.err = <-result
		_ = log.Close()
		close(ended)
	}(c.ended)
	return nil
}

// Wait waits until the process ends, and returns its error. It kills the process if ctx ends first.
// Call Wait only after Start.
func (c *Command) Wait(ctx context.Context) error {
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), c.Kill())
	}
}

// Kill implements Subject.
func (c *Command) Kill() error {
	if c.process == nil {
		return nil
	}
	if err := killGroup(c.process.Process); err != nil {
		return err
	}
	<-c.ended
	c.process = nil
	return nil
}

// Ended implements Subject.
func (c *Command) Ended() error {
	if c.process == nil {
		return nil
	}
	select {
	case <-c.ended:
		if c.err == nil {
			return fmt.Errorf("the command has ended without an error; its output is in %s", c.Log)
		}
		return fmt.Errorf("the command has ended: %w; its output is in %s", c.err, c.Log)
	default:
		return nil
	}
}
