package dataplane

import (
	"net"
	"net/netip"
	"slices"
)

// source returns the source address of connections to a target. In these cases, it returns the
// zero value, and the kernel uses an address of this machine:
//   - ShowClients is false.
//   - The client has an IPv6 address or a loopback address, or is in HideClients.
//   - The target has an IPv6 address. A connection to it cannot have an IPv4 source address.
//
// In all other cases, source returns the client's address.
func (c Config) source(client, target netip.Addr) netip.AddrPort {
	client = client.Unmap()
	if !c.ShowClients || !client.Is4() || !target.Is4() || client.IsLoopback() ||
		slices.ContainsFunc(c.HideClients, func(p netip.Prefix) bool { return p.Contains(client) }) {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(client, 0)
}

// dialUDP opens a socket for a flow to a target. It returns an error if the dial policy does not
// allow the address of the target.
func (c Config) dialUDP(client netip.Addr, chosen choice) (*net.UDPConn, error) {
	address := addrPort(chosen.ip, chosen.port)
	if err := c.dials.check(address.Addr()); err != nil {
		return nil, err
	}
	from := c.source(client, address.Addr())
	d := net.Dialer{}
	if from.IsValid() {
		d.LocalAddr, d.Control = net.UDPAddrFromAddrPort(from), allowForeign
	}
	conn, err := d.Dial("udp", address.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}
