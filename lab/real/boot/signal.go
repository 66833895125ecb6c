package boot

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// notifyChild sends to c when a child has ended, until stop is called.
func notifyChild(c chan<- os.Signal) (stop func()) {
	signal.Notify(c, unix.SIGCHLD)
	return func() { signal.Stop(c) }
}
