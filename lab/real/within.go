package real

import (
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// within calls fn on a thread that is in a network namespace meanwhile. A socket
// stays in the one that it was made in.
func within(ns netns.NsHandle, fn func() error) error {
	return away(func() error { return netns.Set(ns) }, fn)
}

// withinNew calls fn on a thread that is in a new network namespace.
func withinNew(fn func() error) error {
	return away(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, fn)
}

// away has a thread leave its network namespace, calls fn on it, and has it go
// back: it may be the process' first, which never ends. That one would hold the
// other namespace for ever, and /proc would say that the whole process is there.
func away(leave, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err == nil {
			defer func() { _ = home.Close() }() // only ever read
			err = leave()
		}
		if err == nil {
			err = fn()
		}
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		} // else it ends with this goroutine, which did not unlock it
		done <- err
	}()
	return <-done
}
