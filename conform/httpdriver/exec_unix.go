//go:build unix

package httpdriver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup lets p start in its own process group. The end of the context of p then kills all
// processes in this group. Otherwise a program that sh has started would continue after the end.
func ownGroup(p *exec.Cmd) {
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = func() error {
		if err := syscall.Kill(-p.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
}
