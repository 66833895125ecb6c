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
	return away(newNetwork, fn)
}

func newNetwork() error { return unix.Unshare(unix.CLONE_NEWNET) }

// away calls fn on a thread that has left its network namespace.
func away(leave, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		back, err := leaving(leave)
		if err == nil {
			err = fn()
		}
		back()
		done <- err
	}()
	return <-done
}

// leaving has the goroutine's thread, and nobody else on it, leave its network
// namespace until back is called, which must be: it may be the process' first
// thread, which never ends. That one would hold the other namespace for ever, and
// /proc would say that the whole process is there.
func leaving(leave func() error) (back func(), err error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err == nil {
		err = leave()
	}
	return func() {
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with the goroutine, which did not unlock it
		_ = home.Close() // only ever read
	}, err
}
