package dataplane

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// waiting blocks until a socket has something to read, and returns how many
// bytes that is; 1 for an end or an error, which the next read will tell.
func waiting(raw syscall.RawConn) (int64, error) {
	var n int
	err := raw.Read(func(fd uintptr) bool {
		if n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ); n > 0 {
			return true
		}
		ready, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if ready == 0 {
			return false
		}
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) // bytes may have come in between
		return true
	})
	return int64(max(n, 1)), err
}

// unsent reports whether bytes that were written to c still wait for its peer
// to take them.
func unsent(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && n > 0
}
