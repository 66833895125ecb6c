//go:build !linux

package hostnet

import (
	"fmt"
	"net"
	"net/netip"
)

// Routes returns the networks of this machine's interfaces. It does not return
// routes to networks behind a router.
func Routes() ([]netip.Prefix, error) {
	all, err := interfaceRanges()
	for i, p := range all {
		all[i] = p.Masked()
	}
	return all, err
}

// Addresses returns the addresses of this machine's interfaces.
func Addresses() ([]netip.Prefix, error) {
	all, err := interfaceRanges()
	for i, p := range all {
		all[i] = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
	}
	return all, err
}

// interfaceRanges returns the addresses of the machine's interfaces, each with
// its mask.
func interfaceRanges() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of this machine: %w", err)
	}
	var all []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}
