// Command pause holds the namespaces of a pod. It waits until it gets a signal
// to stop. As the first process of a shared PID namespace, it also reaps
// orphaned processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	orphans := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-stop:
			return
		case <-orphans:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
