package real

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

// Network is where a lab's machines are. Its addresses must not be in use on
// the host or beyond.
type Network struct {
	// VPC holds the router, the host and every instance and load balancer.
	VPC netip.Prefix
	// Router and Host are their addresses in the VPC.
	Router, Host netip.Addr
	// LoadBalancers is a part of VPC. Each of its addresses is the host's.
	LoadBalancers netip.Prefix
	// Pods is what the machines' pod ranges are parts of; not in VPC.
	Pods netip.Prefix
	// Link names the host's link into the VPC: 15 letters at most.
	Link string
	// BridgeOnHost has Link be the bridge itself, and the router have the cable:
	// so hypervisors that share the host's network namespace, and nothing else,
	// reach it. Without it the router has the bridge, where no firewall of the
	// host looks at what machines say to each other.
	BridgeOnHost bool
}

// Validate says everything that is wrong with n.
func (n Network) Validate() error {
	var errs []error
	for name, a := range map[string]netip.Addr{"router": n.Router, "host": n.Host} {
		if !n.VPC.Contains(a) {
			errs = append(errs, fmt.Errorf("the %s's address %s is not in the VPC %s", name, a, n.VPC))
		}
	}
	if !n.VPC.Contains(n.LoadBalancers.Addr()) || n.LoadBalancers.Bits() < n.VPC.Bits() {
		errs = append(errs, fmt.Errorf("load balancers %s are not in the VPC %s", n.LoadBalancers, n.VPC))
	}
	if n.VPC.Overlaps(n.Pods) {
		errs = append(errs, fmt.Errorf("pods %s overlap the VPC %s", n.Pods, n.VPC))
	}
	if n.Link == "" || len(n.Link) > unix.IFNAMSIZ-1 {
		errs = append(errs, fmt.Errorf("the link's name must have 1 to %d letters, got %q", unix.IFNAMSIZ-1, n.Link))
	}
	return errors.Join(errs...)
}

const (
	// bridgeName is the router's link into the VPC: the bridge, or a cable to it.
	bridgeName = "vpc"
	// hostPort and routerPort are what the bridge calls the cable of the other
	// side, that it is not on.
	hostPort, routerPort = "host", "router"
)

// vpc is a network namespace that is the lab's router, with a table of routes,
// and a bridge to which the router, the host and every machine are connected.
// The host itself gets one link, two routes and two rules, which are gone with
// the link or by Clean; its own forwarding and its firewall are not touched.
type vpc struct {
	Network
	file   string // the namespace, mounted, so that it outlives us
	ns     netns.NsHandle
	link   *netlink.Handle // in the namespace
	bridge *bridge
}

// openVPC makes the VPC, or takes over what an earlier run left of it.
func openVPC(file string, n Network) (*vpc, error) {
	v := &vpc{Network: n, file: file}
	var err error
	if v.ns, err = netns.GetFromPath(file); err != nil || !isNetNS(file) {
		if v.ns, err = v.newRouter(); err != nil {
			return nil, fmt.Errorf("network namespace of the VPC: %w", err)
		}
	}
	if v.link, err = netlink.NewHandleAt(v.ns); err != nil {
		return nil, errors.Join(err, v.ns.Close())
	}
	v.bridge = &bridge{n, bridgeName, v.link}
	if n.BridgeOnHost {
		if v.bridge, err = hostBridge(n); err != nil {
			return nil, errors.Join(err, v.close())
		}
	}
	if err := v.wire(); err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

// newRouter makes the namespace, without the cable to one that is no more: the
// kernel takes its time with that.
func (v *vpc) newRouter() (netns.NsHandle, error) {
	host, err := netlink.NewHandle()
	if err != nil {
		return netns.None(), err
	}
	defer host.Close()
	stale := v.Link
	if v.BridgeOnHost {
		stale = routerPort
	}
	if err := removeLink(host, stale); err != nil {
		return netns.None(), err
	}
	return newNetNS(v.file)
}

func isNetNS(file string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(file, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// newNetNS makes a network namespace that forwards, and mounts it at file.
func newNetNS(file string) (netns.NsHandle, error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return netns.None(), err
	}
	err := withinNew(func() (err error) {
		defer func() {
			if err != nil { // the next one must not take it for whole
				_ = unix.Unmount(file, unix.MNT_DETACH)
			}
		}()
		if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), file, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		for setting, value := range map[string]string{
			"net/ipv4/ip_forward":                  "1",
			"net/ipv4/conf/all/send_redirects":     "0", // the way between two pods is through the router
			"net/ipv4/conf/default/send_redirects": "0",
		} {
			if err := os.WriteFile(filepath.Join("/proc/sys", setting), []byte(value), 0o644); err != nil { //nolint:gosec // the kernel made it
				return err
			}
		}
		return nil
	})
	if err != nil {
		return netns.None(), err
	}
	return netns.GetFromPath(file)
}

func (v *vpc) close() error {
	if v.BridgeOnHost && v.bridge != nil {
		v.bridge.link.Close()
	}
	v.link.Close()
	return v.ns.Close()
}

// wire makes the bridge and the cable to it as they should be.
func (v *vpc) wire() error {
	host, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer host.Close()
	on := v.Router
	cable := netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: v.Link, HardwareAddr: card(v.Host)}, PeerName: hostPort}
	port := hostPort
	if v.BridgeOnHost {
		on = v.Host
		cable = netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: routerPort}, PeerName: bridgeName, PeerHardwareAddr: card(v.Router)}
		port = routerPort
	}
	// A bridge that is not told its card takes the lowest of its ports', and
	// another one when a machine comes or goes: for seconds then, machines would
	// send to a router that is no more.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: v.bridge.name, HardwareAddr: card(on)}}
	if err := v.bridge.link.LinkAdd(bridge); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("bridge: %w", err)
	}
	if _, err := host.LinkByName(cable.Name); err != nil {
		cable.PeerNamespace = netlink.NsFd(v.ns)
		if err := host.LinkAdd(&cable); err != nil {
			return fmt.Errorf("link %s: %w", cable.Name, err)
		}
	}
	if err := errors.Join(
		v.bridge.plug(port), configure(host, v.Link, v.in(v.Host)),
		up(v.link, "lo"), configure(v.link, bridgeName, v.in(v.Router)), configure(v.link, bridgeName, metadataAddress),
	); err != nil {
		return err
	}
	return errors.Join(v.hostRoutes(host), v.routerRoutes(), v.leadAnswers(host))
}

// in is an address with the VPC's mask.
func (n Network) in(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, n.VPC.Bits()) }

// hostRoutes lead pods' addresses to the router, and make every address of a
// load balancer the host's own, so that the data plane can listen on any.
func (v *vpc) hostRoutes(host *netlink.Handle) error {
	cable, err := host.LinkByName(v.Link)
	if err != nil {
		return err
	}
	index := cable.Attrs().Index
	for _, r := range []netlink.Route{
		{LinkIndex: index, Dst: ipNet(v.Pods), Gw: v.Router.AsSlice()},
		{LinkIndex: index, Dst: ipNet(v.LoadBalancers), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST},
	} {
		if err := host.RouteReplace(&r); err != nil {
			return fmt.Errorf("route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// routerRoutes refuse what the cloud has no route for, instead of dropping it.
func (v *vpc) routerRoutes() error {
	r := netlink.Route{Dst: ipNet(v.Pods), Type: unix.RTN_UNREACHABLE}
	if err := v.link.RouteReplace(&r); err != nil {
		return fmt.Errorf("route to %s: %w", r.Dst, err)
	}
	return nil
}

// destroyVPC takes away the namespace at file and all that is in it. The kernel
// does that in its own time; the host's link goes at once. None is no error.
func destroyVPC(file, link string) error {
	if err := forgetAnswers(link); err != nil {
		return err
	}
	host, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer host.Close()
	return errors.Join(removeLink(host, link), dropNetNS(file))
}

// dropNetNS lets go of the namespace at file. None is no error.
func dropNetNS(file string) error {
	if !isNetNS(file) {
		return nil
	}
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("network namespace %s: %w", file, err)
	}
	return os.Remove(file)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Lay makes the network that Run will use, for who listens on an address in it
// before Run begins.
func Lay(dir string, n Network) error {
	if err := n.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	v, err := openVPC(filepath.Join(dir, vpcFile), n)
	if err != nil {
		return err
	}
	return v.close()
}

// Free reports whether the host has no route into any of the networks, except
// its default route.
func Free(networks ...netip.Prefix) (bool, error) {
	routes, err := hostnet.Routes()
	if err != nil {
		return false, err
	}
	for _, n := range networks {
		if slices.ContainsFunc(routes, n.Overlaps) {
			return false, nil
		}
	}
	return true, nil
}
