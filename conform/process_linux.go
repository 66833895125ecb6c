package conform

import (
	"os/exec"
	"syscall"
)

// endWithThread lets the kernel kill p when the thread that starts p ends.
func endWithThread(p *exec.Cmd) {
	if p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
