package dataplane

import (
	"net/netip"
	"time"
)

const (
	dialTimeout  = 2 * time.Second
	dialAttempts = 3 // maximum number of targets that the data plane dials for a connection
)

type direction int

const (
	in  direction = iota // from client to target
	out                  // from target to client
)

func (d direction) String() string { return [...]string{"in", "out"}[d] }

// addrPort returns a target's address. If ip is not a valid address, the result is invalid and
// cannot be dialed.
func addrPort(ip string, port int) netip.AddrPort {
	a, _ := netip.ParseAddr(ip)
	return netip.AddrPortFrom(a, uint16(port))
}
