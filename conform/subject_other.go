//go:build !unix

package conform

import (
	"errors"
	"os"
	"os/exec"
)

// ownGroup does nothing, because this system has no process groups.
func ownGroup(*exec.Cmd) {}

// killGroup kills only p. It returns nil if p does not run.
func killGroup(p *os.Process) error {
	if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
