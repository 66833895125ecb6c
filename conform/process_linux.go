package conform

import (
	"os/exec"
	"syscall"
)

// endWithThread sets an option of p. When the thread that started p ends, the kernel kills p.
func endWithThread(p *exec.Cmd) {
	if p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
