package conform

import (
	"os/exec"
	"runtime"
)

// startProcess starts p. When p has ended, the returned channel receives the
// result of p, and is then closed. On Linux, the kernel kills p when this process ends, even if
// SIGKILL ends this process.
func startProcess(p *exec.Cmd) (<-chan error, error) {
	endWithThread(p)
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel kills p when this thread ends, so the thread waits for p
		err := p.Start()
		started <- err
		if err == nil {
			ended <- p.Wait()
			close(ended)
		}
	}()
	return ended, <-started
}
