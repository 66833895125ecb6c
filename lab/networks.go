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

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// networks holds the address ranges of a lab's cloud. Linux answers on all of 127/8
// without configuration. Each lab on a machine uses two /16 of 127/8, so two labs can
// run side by side. Real machines use a VPC instead: see realNetworks.
type networks struct {
	Instances     string `json:"instances"`
	LoadBalancers string `json:"loadBalancers"`
	VPC           string `json:"vpc,omitempty"`  // for real machines only
	Pods          string `json:"pods,omitempty"` // pods on real machines
}

const (
	firstNetwork = 64  // 127.64.0.0/16, the default of the cloud
	lastNetwork  = 126 // leaves the rest of 127/8 to other programs
)

func networksFrom(octet int) networks {
	return networks{Instances: fmt.Sprintf("127.%d.0.0/16", octet), LoadBalancers: fmt.Sprintf("127.%d.0.0/16", octet+1)}
}

// loadBalancers6 derives an IPv6 range from the field LoadBalancers. So labs that run
// at the same time have different IPv6 ranges too. It returns "" for a VPC, which has
// no IPv6.
func (n networks) loadBalancers6() string {
	if n.VPC != "" {
		return ""
	}
	var octet int
	_, _ = fmt.Sscanf(n.LoadBalancers, "127.%d.", &octet)
	return fmt.Sprintf("fd00:127:%d::/64", octet)
}

// errClaimed means that another running lab has claimed the networks.
var errClaimed = errors.New("another lab uses these networks")

// claim reserves the networks for this process until it calls release or ends. The
// reservation is an abstract Unix socket (unix(7)), so it is valid in this network
// namespace. It is atomic: labs that start at the same time get different networks. If
// another process has the reservation, claim returns errClaimed.
func (n networks) claim() (release func(), err error) {
	l, err := net.Listen("unix", "@cloudsim/networks/"+n.Instances)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("addresses %s: %w", n.Instances, errClaimed)
	}
	if err != nil {
		return nil, fmt.Errorf("claim the addresses %s: %w", n.Instances, err)
	}
	return func() { l.Close() }, nil
}

// claimAgain claims the networks of the last start. It waits up to lockRelease, because
// the kernel may not have closed the socket of a killed lab yet.
func (n networks) claimAgain(ctx context.Context) (release func(), err error) {
	release, err = n.claim()
	for end := time.Now().Add(lockRelease); errors.Is(err, errClaimed) && time.Now().Before(end) && ctx.Err() == nil; release, err = n.claim() {
		backoff.Sleep(ctx, lockRelease/50)
	}
	return release, err
}

// claimNetworks claims the networks of the last start, because the instances of the
// cloud already have addresses in these networks. Without a last start it claims the
// first networks in which no program listens.
func claimNetworks(ctx context.Context, last networks) (n networks, release func(), err error) {
	used, err := listening()
	if err != nil {
		return last, nil, err
	}
	if last.Instances != "" {
		if n, err = last.orUnused(used); err == nil {
			release, err = n.claimAgain(ctx)
		}
		return n, release, err
	}
	for {
		n, err := last.orUnused(used)
		if err != nil {
			return n, nil, err
		}
		release, err := n.claim()
		if !errors.Is(err, errClaimed) {
			return n, release, err
		}
		used[n.octet()] = "a lab that starts"
	}
}

// octet returns the second byte of the instances' network.
func (n networks) octet() int { return int(netip.MustParsePrefix(n.Instances).Addr().As4()[1]) }

// orUnused returns n, or the first unused networks if n is empty. The keys of the map
// used are the second bytes of 127.x networks in which a program listens. Each value
// is an address on which the program listens.
func (n networks) orUnused(used map[int]string) (networks, error) {
	if n.Instances != "" {
		for octet, addr := range used {
			if in := fmt.Sprintf("127.%d.0.0/16", octet); in == n.Instances || in == n.LoadBalancers {
				return n, fmt.Errorf("addresses of this lab's cloud (%s) are in use: a program listens on %s; if this is another lab, stop it first", in, addr)
			}
		}
		return n, nil
	}
	for octet := firstNetwork; octet < lastNetwork; octet += 2 {
		if used[octet] == "" && used[octet+1] == "" {
			return networksFrom(octet), nil
		}
	}
	return n, fmt.Errorf("programs listen in every network between 127.%d.0.0 and 127.%d.0.0: stop other labs", firstNetwork, lastNetwork+1)
}

// listening finds the networks of 127/8 in which a program listens. The keys of the
// result are the second bytes of these networks, and each value is an address on
// which a program listens.
func listening() (map[int]string, error) {
	raw, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	used := map[int]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		// The fields are number, local address, remote address and state: proc_net_tcp(5).
		// The address is a number in the machine's byte order, here little-endian.
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
