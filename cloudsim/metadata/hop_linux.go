package metadata

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// oneHop sets the hop limit of a listener's replies to 1, so that the first router drops
// the replies. Accepted connections inherit the limit. oneHop returns an error if the
// kernel does not support this setting.
func oneHop(ln net.Listener) error {
	t, ok := ln.(*net.TCPListener)
	if !ok {
		return errors.New("not a TCP listener")
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 1)
		if domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_INET6 {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1))
		}
	})
	return errors.Join(err, failed)
}
