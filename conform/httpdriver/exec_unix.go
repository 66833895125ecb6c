//go:build unix

package httpdriver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup lets p start in its own process group. When the context of p ends, p.Cancel kills all
// processes in this group. Otherwise a program that sh has started would continue to run.
func ownGroup(p *exec.Cmd) {
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = func() error {
		if err := syscall.Kill(-p.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
}
