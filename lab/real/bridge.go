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

// bridge is where the cables of a VPC end.
type bridge struct {
	network Network
	name    string
	link    *netlink.Handle // in the namespace that it is in
}

// hostBridge is the bridge of a VPC whose router is another process: it is in
// this process' own namespace, as soon as the router made it.
func hostBridge(n Network) (*bridge, error) {
	link, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	return &bridge{n, n.Link, link}, nil
}

// attach gives the machine whose first process is pid a cable to the VPC.
func (b *bridge) attach(name string, pid int, address netip.Addr) error {
	if err := b.detach(name); err != nil {
		return err
	}
	cable := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid), PeerHardwareAddr: card(address),
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
	defer func() { _ = ns.Close() }() // only ever read
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := errors.Join(up(inside, "lo"), configure(inside, "eth0", b.network.in(address))); err != nil {
		return err
	}
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	gateway := &netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: b.network.Router.AsSlice()}
	if err := inside.RouteReplace(gateway); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

// detach takes a machine's cable away. None is no error.
func (b *bridge) detach(name string) error { return removeLink(b.link, name) }

// plug puts this end of a cable into the bridge.
func (b *bridge) plug(name string) error {
	l, err := b.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	bridge, err := b.link.LinkByName(b.name)
	if err != nil {
		return fmt.Errorf("the bridge of the VPC, which its router makes: %w", err)
	}
	if err := b.link.LinkSetMaster(l, bridge); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return b.link.LinkSetUp(l)
}

// setCables cuts the cables of some machines at this end, and joins those of
// the others. Machines that are off have none.
func (b *bridge) setCables(cut map[cloudsim.InstanceID]bool) error {
	links, err := b.link.LinkList()
	if err != nil {
		return fmt.Errorf("cables: %w", err)
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

// cables are the names of all links beside the bridge.
func (b *bridge) cables() (map[string]bool, error) {
	links, err := b.link.LinkList()
	if err != nil {
		return nil, fmt.Errorf("cables: %w", err)
	}
	there := map[string]bool{}
	for _, l := range links {
		there[l.Attrs().Name] = true
	}
	return there, nil
}

// card is the hardware address of who has an address in the VPC: always the
// same, so that nobody sends to a card that is gone.
func card(a netip.Addr) net.HardwareAddr {
	a4 := a.As4()
	return net.HardwareAddr{2, 0, a4[0], a4[1], a4[2], a4[3]}
}

func up(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return h.LinkSetUp(l)
}

// configure gives a link an address and switches it on.
func configure(h *netlink.Handle, name string, address netip.Prefix) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen())}}
	if err := h.AddrReplace(l, a); err != nil {
		return fmt.Errorf("address %s of %s: %w", address, name, err)
	}
	return h.LinkSetUp(l)
}

// removeLink takes a link away. None is no error.
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
