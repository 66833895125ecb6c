package real

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// bridge connects the cables (veth pairs) of a VPC.
type bridge struct {
	network Network
	name    string
	link    *netlink.Handle // handle for the bridge's namespace
}

// hostBridge returns the bridge of the VPC n in this process's network namespace. The setting
// n.BridgeOnHost must be true. The bridge need not exist yet: the router can create it later.
func hostBridge(n Network) (*bridge, error) {
	link, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	return &bridge{n, n.Link, link}, nil
}

// attach connects a machine to the VPC with a veth pair. The machine's first process has the
// given pid.
func (b *bridge) attach(name string, pid int, address netip.Addr) error {
	if err := b.detach(name); err != nil {
		return err
	}
	cable := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid), PeerHardwareAddr: cloudsim.MAC(address),
	}
	if err := b.link.LinkAdd(cable); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := b.plug(name); err != nil {
		return err
	}
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }() // an error does not matter for a read-only handle
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := errors.Join(setLinkUp(inside, "lo"), configure(inside, "eth0", b.network.withLength(address))); err != nil {
		return err
	}
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	gateways := []netip.Addr{b.network.Router}
	if b.network.Internet.IPv6 {
		if err := configure(inside, "eth0", b.network.in6(address)); err != nil {
			return err
		}
		gateways = append(gateways, b.network.in6(b.network.Router).Addr())
	}
	for _, g := range gateways {
		if err := inside.RouteReplace(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: g.AsSlice()}); err != nil {
			return fmt.Errorf("default route via %s: %w", g, err)
		}
	}
	return nil
}

// detach deletes a machine's veth pair. If the pair does not exist, detach returns nil.
func (b *bridge) detach(name string) error { return removeLink(b.link, name) }

// plug adds the local end of a veth pair to the bridge.
func (b *bridge) plug(name string) error {
	l, err := b.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	bridge, err := b.link.LinkByName(b.name)
	if err != nil {
		return fmt.Errorf("looking for the bridge of the VPC, which the router creates: %w", err)
	}
	if err := b.link.LinkSetMaster(l, bridge); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return b.link.LinkSetUp(l)
}

// setCables disconnects or connects the veth pairs of the machines in cut. If the value of a
// machine in cut is true, setCables disconnects the pair of this machine. Otherwise it connects the
// pair. It changes only the pair's end in the bridge, not the end in the machine. It ignores
// machines that are off, because they have no veth pair.
func (b *bridge) setCables(cut map[cloudsim.InstanceID]bool) error {
	links, err := b.link.LinkList()
	if err != nil {
		return fmt.Errorf("listing the links: %w", err)
	}
	var errs []error
	for _, l := range links {
		dark, known := cut[cloudsim.InstanceID(l.Attrs().Name)]
		on := l.Attrs().Flags&net.FlagUp != 0
		switch {
		case known && dark && on:
			errs = append(errs, b.link.LinkSetDown(l))
		case known && !dark && !on:
			errs = append(errs, b.link.LinkSetUp(l))
		}
	}
	return errors.Join(errs...)
}

func (b *bridge) linkNames() (map[string]bool, error) {
	links, err := b.link.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the links: %w", err)
	}
	names := map[string]bool{}
	for _, l := range links {
		names[l.Attrs().Name] = true
	}
	return names, nil
}

func setLinkUp(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return h.LinkSetUp(l)
}

// configure sets a link's address and sets the link up.
func configure(h *netlink.Handle, name string, address netip.Prefix) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen())}}
	if address.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // the lab assigns unique addresses, so the address is usable at once
	}
	if err := h.AddrReplace(l, a); err != nil {
		return fmt.Errorf("address %s of %s: %w", address, name, err)
	}
	return h.LinkSetUp(l)
}

// removeLink deletes a link. If the link does not exist, removeLink returns nil.
func removeLink(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := h.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}

func isNoLink(err error) bool {
	_, ok := errors.AsType[netlink.LinkNotFoundError](err)
	return ok
}
