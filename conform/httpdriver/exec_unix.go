//go:build unix

package httpdriver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup lets the shell p start in its own process group. When the context of p ends, p.Cancel
// kills all processes in this group. If p.Cancel killed only the shell, the child processes of the
// shell would continue to run.
func ownGroup(p *exec.Cmd) {
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = func() error {
		if err := syscall.Kill(-p.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
}
