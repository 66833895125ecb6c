package conform

import (
	"os/exec"
	"syscall"
)

// endWithThread sets an option of p. With this option, the kernel kills p when the thread that
// started p ends.
func endWithThread(p *exec.Cmd) {
	if p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
