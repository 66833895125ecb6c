//go:build unix

package conform

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func ownGroup(p *exec.Cmd) { p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills all processes in the process group of p. It returns nil if this group has no
// process.
func killGroup(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
