package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/internal/backoff"
	"github.com/cloudsim-dev/allinone/lab/real"
	"golang.org/x/sys/unix"
)

// Networks holds the address ranges of a lab's cloud. A process can listen on each address of
// 127.0.0.0/8, because Linux assigns the whole range to the loopback interface. Each lab on a
// host has its own two /16 ranges of 127.0.0.0/8, so two labs can run side by side. Real
// machines use a VPC instead: see RealNetworks.
type Networks struct {
	Instances     string `json:"instances"`
	LoadBalancers string `json:"loadBalancers"`
	VPC           string `json:"vpc,omitempty"`  // for real machines only
	Pods          string `json:"pods,omitempty"` // pods on real machines
}

const (
	FirstHollowNetwork = 64  // 127.64.0.0/16, the default of the cloud
	lastNetwork        = 126 // leaves the rest of 127/8 to other programs
)

// Real machines are in a VPC of the lab. The lab uses one private /16 range for the VPC and another
// for the pods. It chooses two ranges to which this host has no route except the default route.
const (
	FirstVPC = 100 // 10.100.0.0/16 for the VPC and 10.101.0.0/16 for its pods
	lastVPC  = 198
)

// Networks in the cluster. In a lab with hollow nodes, these networks exist only in the API: no
// process answers at the address of a pod or a Service.
const (
	ServiceRange = "10.96.0.0/16"
	// PodRange is large enough for 16,384 hollow nodes, because each hollow node gets one
	// /24. Real nodes use the range Networks.Pods: see RealNetworks.
	PodRange = "10.128.0.0/10"
)

// firstServiceIP is the address of the Service "kubernetes". ClusterDNS is the address
// of the name server.
var (
	firstServiceIP = net.IPv4(10, 96, 0, 1).To4()
	ClusterDNS     = net.IPv4(10, 96, 0, 10).To4()
)

// HollowNetworks returns the networks of a lab with hollow nodes. The instances get the range
// 127.OCTET.0.0/16, where OCTET is the given octet. The load balancers get the next /16.
func HollowNetworks(octet int) Networks {
	return Networks{Instances: fmt.Sprintf("127.%d.0.0/16", octet), LoadBalancers: fmt.Sprintf("127.%d.0.0/16", octet+1)}
}

// RealNetworks returns the networks of a lab with real machines. The VPC is 10.OCTET.0.0/16, where
// OCTET is the given octet. The pods get the next /16.
func RealNetworks(octet int) Networks {
	return Networks{
		Instances: fmt.Sprintf("10.%d.0.0/17", octet), LoadBalancers: fmt.Sprintf("10.%d.128.0/18", octet),
		VPC: fmt.Sprintf("10.%d.0.0/16", octet), Pods: fmt.Sprintf("10.%d.0.0/16", octet+1),
	}
}

// LoadBalancers6 derives an IPv6 range from the field LoadBalancers, so that two running labs never
// share an IPv6 range. It returns "" for real machines, because load balancers in a VPC have only
// IPv4 addresses.
func (n Networks) LoadBalancers6() string {
	if n.VPC != "" {
		return ""
	}
	var octet int
	_, _ = fmt.Sscanf(n.LoadBalancers, "127.%d.", &octet)
	return fmt.Sprintf("fd00:127:%d::/64", octet)
}

// VPCNetwork returns the settings of the VPC. The argument link is the name of the VPC's network
// interface on the host. The addresses of the router and of the host have the third byte 255. The
// cloud assigns no addresses with this third byte.
func (n Networks) VPCNetwork(link string) real.Network {
	vpc := netip.MustParsePrefix(n.VPC)
	base := vpc.Addr().As4()
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{base[0], base[1], 255, last}) }
	return real.Network{
		VPC: vpc, Router: at(1), Host: at(2), Link: link,
		LoadBalancers: netip.MustParsePrefix(n.LoadBalancers), Pods: netip.MustParsePrefix(n.Pods),
	}
}

// errClaimed means that another running lab has claimed the networks.
var errClaimed = errors.New("another lab uses these networks; stop the other lab first")

// claimTimeout limits the wait until the kernel has closed the socket of a killed lab.
const claimTimeout = time.Second

// ClaimHollowNetworks claims the networks of the argument previous. These are the networks of the
// previous start, so the instances of the cloud already have addresses in them. If previous is
// empty, ClaimHollowNetworks claims the first networks in which no program listens. It returns an
// error if a program listens in the previous networks. It also returns an error if these networks
// contain a VPC, because the instances are then real machines. The claim ends when the caller
// calls release.
func ClaimHollowNetworks(ctx context.Context, previous Networks) (n Networks, release func(), err error) {
	if previous.VPC != "" {
		return previous, nil, errors.New("the instances in this data dir are real machines, so their addresses are in a VPC; start this lab with --nodes real, choose another --data-dir, or delete this lab with `allinone reset`")
	}
	listeners, err := usedNetworks()
	if err != nil {
		return previous, nil, err
	}
	if previous.Instances != "" {
		if n, err = previous.orUnused(listeners); err == nil {
			release, err = n.claimAgain(ctx)
		}
		return n, release, err
	}
	for {
		n, err := previous.orUnused(listeners)
		if err != nil {
			return n, nil, err
		}
		release, err := n.claim()
		if !errors.Is(err, errClaimed) {
			return n, release, err
		}
		listeners[n.octet()] = "a lab that starts"
	}
}

// ClaimRealNetworks claims the networks of the argument previous. These are the networks of the
// previous start, so the instances of the cloud already have addresses in them. If previous is
// empty, ClaimRealNetworks claims the first networks to which this host has no route except the
// default route. If previous is not empty and contains no VPC, ClaimRealNetworks returns an error,
// because the instances are then not real machines. The claim ends when the caller calls release.
func ClaimRealNetworks(ctx context.Context, previous Networks) (n Networks, release func(), err error) {
	switch {
	case previous.VPC != "":
		release, err = previous.claimAgain(ctx)
		return previous, release, err
	case previous.Instances != "":
		return previous, nil, errors.New("the instances in this data dir are not real machines, so their addresses are not in a VPC; start real nodes in another --data-dir, or delete this lab with `allinone reset`")
	}
	for octet := FirstVPC; octet <= lastVPC; octet += 2 {
		n := RealNetworks(octet)
		free, err := real.Free(netip.MustParsePrefix(n.VPC), netip.MustParsePrefix(n.Pods))
		if err != nil {
			return n, nil, err
		}
		if !free {
			continue
		}
		release, err := n.claim()
		if !errors.Is(err, errClaimed) {
			return n, release, err
		}
	}
	return previous, nil, fmt.Errorf("this host has routes into every network between 10.%d.0.0 and 10.%d.0.0: stop other labs or disconnect a VPN", FirstVPC, lastVPC+1)
}

// claim reserves the networks for this process until the caller calls release,
// or until the process ends. The reservation is an abstract Unix socket
// (unix(7)), so it is valid only in this network namespace. The reservation is
// atomic: two labs that start concurrently get different networks. If another
// process has the reservation, the method returns errClaimed.
func (n Networks) claim() (release func(), err error) {
	l, err := net.Listen("unix", "@cloudsim/networks/"+n.Instances)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("addresses %s: %w", n.Instances, errClaimed)
	}
	if err != nil {
		return nil, fmt.Errorf("claiming the addresses %s: %w", n.Instances, err)
	}
	return func() { l.Close() }, nil
}

// claimAgain claims the networks of the previous start. If another process has the reservation,
// claimAgain tries again for up to claimTimeout, because the kernel may not have closed the socket
// of a killed lab yet.
func (n Networks) claimAgain(ctx context.Context) (release func(), err error) {
	release, err = n.claim()
	for end := time.Now().Add(claimTimeout); errors.Is(err, errClaimed) && time.Now().Before(end) && ctx.Err() == nil; release, err = n.claim() {
		backoff.Sleep(ctx, claimTimeout/50)
	}
	return release, err
}

func (n Networks) octet() int { return int(netip.MustParsePrefix(n.Instances).Addr().As4()[1]) }

// orUnused returns the first unused networks if n is empty. Otherwise it returns n, or an error if
// a program listens in n. The map listeners is a result of usedNetworks.
func (n Networks) orUnused(listeners map[int]string) (Networks, error) {
	if n.Instances != "" {
		for octet, addr := range listeners {
			if in := fmt.Sprintf("127.%d.0.0/16", octet); in == n.Instances || in == n.LoadBalancers {
				return n, fmt.Errorf("addresses of this lab's cloud (%s) are in use: a program listens on %s; if this is another lab, stop it first", in, addr)
			}
		}
		return n, nil
	}
	for octet := FirstHollowNetwork; octet < lastNetwork; octet += 2 {
		if listeners[octet] == "" && listeners[octet+1] == "" {
			return HollowNetworks(octet), nil
		}
	}
	return n, fmt.Errorf("programs listen in every network between 127.%d.0.0 and 127.%d.0.0: stop other labs", FirstHollowNetwork, lastNetwork+1)
}

// usedNetworks finds the networks of 127/8 in which a program listens. The keys of the result
// are the second bytes of these networks, and each value is an address on which a program
// listens.
func usedNetworks() (map[int]string, error) {
	raw, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	used := map[int]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		// The fields of a line are number, local address, remote address and state. See
		// Documentation/networking/proc_net_tcp.rst in the Linux source. An IP address is a number
		// in the machine's byte order. This code expects little-endian, so it reads the bytes from
		// last to first.
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[3] != "0A" { // LISTEN
			continue
		}
		ip, port, _ := strings.Cut(f[1], ":")
		b, err := hex.DecodeString(ip + port)
		if err != nil || len(b) != 6 || b[3] != 127 {
			continue
		}
		used[int(b[2])] = fmt.Sprintf("127.%d.%d.%d:%d", b[2], b[1], b[0], int(b[4])<<8|int(b[5]))
	}
	return used, lines.Err()
}
