package dataplane

import (
	"net/netip"
	"time"
)

const (
	dialTimeout  = 2 * time.Second
	dialAttempts = 3 // targets that a connection tries before it is given up
)

// direction is a way through a connection.
type direction int

const (
	in  direction = iota // from client to target
	out                  // from target to client
)

func (d direction) String() string { return [...]string{"in", "out"}[d] }

// addrPort is a target's address; the zero one, which cannot be dialled, for
// what is no address.
func addrPort(ip string, port int) netip.AddrPort {
	a, _ := netip.ParseAddr(ip)
	return netip.AddrPortFrom(a, uint16(port))
}
