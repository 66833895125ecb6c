//go:build !portable

package dataplane

import (
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketTo makes a socket for a connection to a target. It returns an error if the dial policy does
// not allow the address. It binds the socket to a source address only if the target should see the
// client's address. The kernel chooses the source port when it connects the socket. The kernel then
// knows the target, so connections to different targets can have the same source port.
func (c Config) socketTo(client netip.Addr, address netip.AddrPort) (fd int, err error) {
	if !address.IsValid() {
		return -1, syscall.EADDRNOTAVAIL
	}
	if err := c.dials.check(address.Addr()); err != nil {
		return -1, err
	}
	family := unix.AF_INET6
	if address.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if from := c.source(client, address.Addr()); err == nil && from.IsValid() {
		if err = setTransparent(fd); err == nil {
			err = unix.Bind(fd, sockaddr(from))
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// eventsNow checks which of the given events are ready on fd now, and returns these events. If fd
// has an error, the result also contains the error event.
func eventsNow(fd int, events int16) uint32 {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}} //nolint:gosec // a descriptor
	if n, err := unix.Poll(p, 0); err != nil || n == 0 {
		return 0
	}
	return uint32(p[0].Revents) //nolint:gosec // epoll and poll use the same bits, see poll(2)
}

// failure returns the error of a connection attempt, or nil if the attempt succeeded.
func failure(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = syscall.Errno(errno) //nolint:gosec // an errno
	}
	return err
}

// hasUnsent reports whether some written bytes still wait for an acknowledgement of the
// peer.
func hasUnsent(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	return err == nil && n > 0
}

// resetAndClose closes a connection with a TCP reset, so that the next read of the peer returns an
// error instead of EOF.
func resetAndClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
}

// addrPortOf converts a socket address of package syscall. It returns an IPv4-mapped IPv6 address
// as IPv4.
func addrPortOf(sa syscall.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)) //nolint:gosec // a port
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)) //nolint:gosec // likewise
	}
	return netip.AddrPort{}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
