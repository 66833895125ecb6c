package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// boundSocket is an open socket. Exactly one of the fields is set.
type boundSocket struct {
	streams net.Listener
	packets *net.UDPConn
}

func (o *boundSocket) Addr() net.Addr {
	if o.packets != nil {
		return o.packets.LocalAddr()
	}
	return o.streams.Addr()
}

func (o *boundSocket) Close() error {
	if o.packets != nil {
		return o.packets.Close()
	}
	return o.streams.Close()
}

// openSocket opens a socket at ip:port and at no other address. If a route
// makes the address local to this machine, but no interface has the address
// (see Config.Claim), the method sets the socket option IP_FREEBIND.
func (c Config) openSocket(ctx context.Context, protocol cloudsim.Protocol, ip string, port int) (*boundSocket, error) {
	o, err := c.openWith(ctx, net.ListenConfig{}, protocol, ip, port)
	if errors.Is(err, syscall.EADDRNOTAVAIL) && isLocal(ip) {
		return c.openWith(ctx, net.ListenConfig{Control: freebind}, protocol, ip, port)
	}
	return o, err
}

func (c Config) openWith(ctx context.Context, lc net.ListenConfig, protocol cloudsim.Protocol, ip string, port int) (*boundSocket, error) {
	address := hostPort(ip, port)
	if protocol == cloudsim.UDP {
		pc, err := lc.ListenPacket(ctx, "udp", address)
		if err != nil {
			return nil, err
		}
		return &boundSocket{packets: pc.(*net.UDPConn)}, nil
	}
	lc.SetMultipathTCP(false) // the kernel splices plain TCP only
	lc.KeepAlive = -1         // off: the idle timeout ends dead connections
	listen := lc.Listen
	if c.listen != nil {
		listen = c.listen
	}
	ln, err := listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &boundSocket{streams: ln}, nil
}

// bind opens the socket s at its address. If this machine denies a port below 1024, the method adds
// LowPortOffset to the port number and opens the new port instead. If o is nil, or if o has another
// port than the configured port, problem contains the reason.
func (c Config) bind(ctx context.Context, s *socket) (o *boundSocket, problem string) {
	ip, port := s.bind, s.key.port
	a, err := netip.ParseAddr(ip)
	if err != nil || a.IsUnspecified() && s.bind == s.key.ip {
		// For an empty or unspecified address, the system would listen on every address of the
		// machine.
		return nil, fmt.Sprintf("%q is not an address to listen on", ip)
	}
	o, err = c.openSocket(ctx, s.key.protocol, ip, port)
	if err == nil {
		return o, ""
	}
	if !errors.Is(err, syscall.EACCES) || port >= 1024 {
		return nil, explain(err, ip, port)
	}
	high := port + c.LowPortOffset
	denied := fmt.Sprintf("port %d needs privileges on this machine%s", port, unprivilegedStart())
	if o, err = c.openSocket(ctx, s.key.protocol, ip, high); err != nil {
		return nil, fmt.Sprintf("%s, and port %d cannot replace it: %s", denied, high, explain(err, ip, high))
	}
	return o, fmt.Sprintf("%s: listening on %d instead", denied, high)
}

func unprivilegedStart() string {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (net.ipv4.ip_unprivileged_port_start is %s)", strings.TrimSpace(string(raw)))
}

func explain(err error, ip string, port int) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("another program listens on %s or on port %d of all addresses; trying again until the port is free", hostPort(ip, port), port)
	case errors.Is(err, syscall.EADDRNOTAVAIL) && runtime.GOOS != "linux" && netip.MustParseAddr(ip).IsLoopback():
		return fmt.Sprintf("%s is not an address of this machine: %s has only the loopback address 127.0.0.1 by default, so add this address (on macOS: sudo ifconfig lo0 alias %s)", ip, runtime.GOOS, ip)
	case errors.Is(err, syscall.EADDRNOTAVAIL) && runtime.GOOS == "linux":
		return fmt.Sprintf("%s is not an address of this machine; trying again until the address exists. To add the address: sudo ip route add local %s dev lo, or run the cloud as root with --claim-addresses", ip, ip)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("%s is not an address of this machine; trying again until the address exists", ip)
	}
	return fmt.Sprintf("cannot listen on %s: %s", hostPort(ip, port), cause(err))
}

func hostPort(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// cause returns the text of the system error in err, without the address, because the function
// explain adds the address. If err contains no system error, cause returns the text of err.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
