package dataplane

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// allowForeign lets a socket bind to an address that this machine does not have.
func allowForeign(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) { err = setTransparent(int(fd)) })
	return errors.Join(cerr, err)
}

// setTransparent sets IP_TRANSPARENT and IP_BIND_ADDRESS_NO_PORT on fd, see ip(7). With the second
// option, the kernel chooses the source port when it connects the socket. The kernel then knows the
// target, so connections to different targets can have the same source port.
func setTransparent(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
}

// canShow returns an error if this process cannot show clients' addresses to targets.
func canShow() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // the socket was only a test
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1); err != nil {
		return fmt.Errorf("--show-clients needs CAP_NET_ADMIN: %w", err)
	}
	return nil
}
