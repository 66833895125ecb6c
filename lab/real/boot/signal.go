package boot

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// notifyChild sends a signal to c each time that a child process ends, until the caller calls
// stop.
func notifyChild(c chan<- os.Signal) (stop func()) {
	signal.Notify(c, unix.SIGCHLD)
	return func() { signal.Stop(c) }
}
