package real

import (
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNamespace calls fn on a thread that is temporarily in the network namespace ns. Sockets
// that fn creates stay in ns.
func inNamespace(ns netns.NsHandle, fn func() error) error {
	return runOutside(func() error { return netns.Set(ns) }, fn)
}

// withinNew calls fn on a thread that is temporarily in a new network namespace.
func withinNew(fn func() error) error {
	return runOutside(newNetwork, fn)
}

func newNetwork() error { return unix.Unshare(unix.CLONE_NEWNET) }

// runOutside calls leaveFn and then fn on one thread. leaveFn moves the thread to another
// network namespace. At the end the thread returns to its own namespace.
func runOutside(leaveFn, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		back, err := leaveNamespace(leaveFn)
		if err == nil {
			err = fn()
		}
		back()
		done <- err
	}()
	return <-done
}

// leaveNamespace locks the goroutine to its thread and moves the thread out of its network
// namespace. The caller must call the returned function, even if leaveNamespace also returns an
// error. The returned function moves the thread back into its original namespace. The first thread
// of the process must move back, because Go never ends this thread. If it stayed outside its
// original namespace, /proc/self would show the wrong namespace for the whole process.
func leaveNamespace(leave func() error) (back func(), err error) {
	runtime.LockOSThread()
	originalNS, err := netns.Get()
	if err == nil {
		err = leave()
	}
	return func() {
		if netns.Set(originalNS) == nil {
			runtime.UnlockOSThread()
		} // if netns.Set fails, the goroutine stays locked, so the thread ends with the goroutine
		_ = originalNS.Close() // an error does not matter for a read-only handle
	}, err
}
