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

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

// Network holds the addresses of a lab's machines. VPC and Pods must not overlap a network
// to which this host already has a route. The function Free checks this condition.
type Network struct {
	// VPC contains the addresses of the router, the host, all instances and all load balancers.
	VPC netip.Prefix
	// Router and Host are the addresses of the router and the host in the VPC.
	Router, Host netip.Addr
	// LoadBalancers is the part of VPC for load balancers. All addresses in it belong to the
	// host.
	LoadBalancers netip.Prefix
	// Pods contains the pod ranges of all machines. It must not overlap VPC.
	Pods netip.Prefix
	// Link is the name of the host's link into the VPC. It has at most 15 characters.
	Link string
	// BridgeOnHost puts the bridge into the host's network namespace, so that all hypervisors in
	// this namespace can use the bridge. In this case, the bridge has the name Link, and a veth
	// pair connects the bridge to the router. If BridgeOnHost is false, the bridge is in the
	// router's namespace. In the router's namespace, the host's firewall does not filter the
	// traffic between machines.
	BridgeOnHost bool
	Internet     Internet
}

// Validate returns one error that lists all invalid fields of n.
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
		errs = append(errs, fmt.Errorf("the link's name must have 1 to %d characters, got %q", unix.IFNAMSIZ-1, n.Link))
	}
	return errors.Join(errs...)
}

const (
	// bridgeName is the name of the router's link into the VPC. If BridgeOnHost is false,
	// this link is the bridge. Otherwise this link is the end of a veth pair.
	bridgeName = "vpc"
	// hostPort is the name of the link from the bridge to the host. routerPort is the name of the
	// link from the bridge to the router. Both links are ends of veth pairs.
	hostPort, routerPort = "host", "router"
)

// vpc is the network namespace of the lab's router. A bridge connects the router, the host and all
// machines. The host gets one link, three routes and two routing rules. The kernel deletes two of
// the routes together with the link. Clean deletes the rules, and the third route, which is in a
// separate table. If Internet is on, setInternet also changes the IPv6 routes, the forwarding
// settings and the firewall of the host.
type vpc struct {
	Network
	file   string // mount point of the namespace; the mount keeps the namespace after this process ends
	ns     netns.NsHandle
	link   *netlink.Handle // netlink handle for the namespace
	bridge *bridge
}

// openVPC creates the VPC or takes over the VPC of an earlier run.
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

// newRouter creates the router's namespace. It first deletes the network link between the host and
// an earlier router. Without this step, the kernel deletes the link only some time after the end of
// the earlier router's namespace. Until then, the method wire would use the old link.
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

// newNetNS creates a network namespace with IP forwarding, and mounts the namespace at nsPath.
func newNetNS(nsPath string) (netns.NsHandle, error) {
	if err := os.WriteFile(nsPath, nil, 0o600); err != nil {
		return netns.None(), err
	}
	err := withinNew(func() (err error) {
		defer func() {
			if err != nil { // the next run must not use an incomplete namespace
				_ = unix.Unmount(nsPath, unix.MNT_DETACH)
			}
		}()
		if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), nsPath, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		for setting, value := range map[string]string{
			"net/ipv4/ip_forward":                  "1",
			"net/ipv4/conf/all/send_redirects":     "0", // traffic between two pods must stay on the path through the router
			"net/ipv4/conf/default/send_redirects": "0",
		} {
			if err := os.WriteFile(filepath.Join("/proc/sys", setting), []byte(value), 0o644); err != nil { //nolint:gosec // the kernel created the file
				return err
			}
		}
		return nil
	})
	if err != nil {
		return netns.None(), err
	}
	return netns.GetFromPath(nsPath)
}

func (v *vpc) close() error {
	if v.BridgeOnHost && v.bridge != nil {
		v.bridge.link.Close()
	}
	v.link.Close()
	return v.ns.Close()
}

// wire creates and configures the bridge, the link and the routes.
func (v *vpc) wire() error {
	host, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer host.Close()
	on := v.Router
	cable := netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: v.Link, HardwareAddr: cloudsim.MAC(v.Host)}, PeerName: hostPort}
	port := hostPort
	if v.BridgeOnHost {
		on = v.Host
		cable = netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: routerPort}, PeerName: bridgeName, PeerHardwareAddr: cloudsim.MAC(v.Router)}
		port = routerPort
	}
	// The bridge needs a fixed hardware address. Otherwise it takes the lowest address of its
	// ports. This address changes when a machine starts or ends. Other machines then send packets
	// to the old address for some seconds.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: v.bridge.name, HardwareAddr: cloudsim.MAC(on)}}
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
		v.bridge.plug(port), configure(host, v.Link, v.withLength(v.Host)),
		setLinkUp(v.link, "lo"), configure(v.link, bridgeName, v.withLength(v.Router)), configure(v.link, bridgeName, metadataAddress),
	); err != nil {
		return err
	}
	return errors.Join(v.hostRoutes(host), v.routerRoutes(), v.leadAnswers(host), v.setInternet(host))
}

func (n Network) withLength(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, n.VPC.Bits()) }

// hostRoutes adds two routes to the host. One route sends traffic for pods to the router. The
// other route makes all load balancer addresses local, so that the data plane can listen on
// them.
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

// routerRoutes adds a route for the range of all pods. If a pod address has no route with a longer
// prefix, this route rejects packets to the address. The sender then gets an error at once.
func (v *vpc) routerRoutes() error {
	r := netlink.Route{Dst: ipNet(v.Pods), Type: unix.RTN_UNREACHABLE}
	if err := v.link.RouteReplace(&r); err != nil {
		return fmt.Errorf("route to %s: %w", r.Dst, err)
	}
	return nil
}

// destroyVPC ends the internet access of the VPC. It deletes the link of the host, and the
// namespace that is mounted at nsPath. The kernel deletes the contents of the namespace later.
// destroyVPC ignores a namespace or a link that does not exist.
func destroyVPC(nsPath, link string) error {
	if err := errors.Join(closeInternet(link), forgetAnswers(link)); err != nil {
		return err
	}
	host, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer host.Close()
	return errors.Join(removeLink(host, link), dropNetNS(nsPath))
}

// dropNetNS unmounts the namespace from nsPath. If no namespace is mounted there, dropNetNS returns
// nil.
func dropNetNS(nsPath string) error {
	if !isNetNS(nsPath) {
		return nil
	}
	if err := unix.Unmount(nsPath, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("network namespace %s: %w", nsPath, err)
	}
	return os.Remove(nsPath)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Lay creates the network in advance, for programs that listen on an address in the VPC before Run
// starts. The arguments dir and n must be equal to the fields Dir and Network of Run's Config.
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

// Free reports whether no route of the host overlaps any of the networks. It ignores the default
// route.
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
