package dataplane

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// foreign lets a socket have an address that is not this machine's.
func foreign(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) { err = transparent(int(fd)) })
	return errors.Join(cerr, err)
}

// transparent is foreign of a descriptor: ip(7). Its port is chosen when it is
// known to whom: two targets may see the same one.
func transparent(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
}

// canShow says why clients cannot be shown here.
func canShow() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // it was a question
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1); err != nil {
		return fmt.Errorf("showing targets who their clients are needs CAP_NET_ADMIN: %w", err)
	}
	return nil
}
