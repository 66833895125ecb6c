//go:build unix

package socket

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// canAttempt is true, because this system can read from a socket without
// waiting.
const canAttempt = true

// attempt reads without waiting. If the socket has no bytes yet, attempt returns false. Otherwise
// it stores the bytes or the error in r and returns true.
func (r *Reader) attempt(fd uintptr) bool {
	size := firstRead
	if r.busy {
		size = r.most
	}
	buf := Pool.Get(size)
	for {
		n, err := syscall.Read(int(fd), *buf)
		if n > 0 {
			r.buf, r.n, r.busy = buf, n, n >= firstRead
			return true
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		Pool.Put(buf)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		if r.err = err; err == nil {
			r.err = io.EOF
		}
		return true
	}
}

// hungUp reports whether the socket has failed, or whether both of its
// directions have ended. It also works if the socket has unread bytes.
func hungUp(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
