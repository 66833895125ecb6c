//go:build !portable

package dataplane

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Connections to different targets can have the same local port. So connections to one target
// take no ports from connections to another target.
func TestPortsArePerTarget(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to create a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	inOwnNetwork(t)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0o600); err != nil {
		t.Skip("cannot limit the local ports of this machine: ", err)
	}
	client := netip.MustParseAddr("127.0.0.1")
	cfg := Config{Instances: prefixesOf("127.0.0.0/8")}.withDefaults()
	for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
		o, err := Config{}.openSocket(t.Context(), cloudsim.TCP, ip, 8080)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		for range 2 {
			at := addrPort(ip, 8080)
			fd, err := cfg.socketTo(client, at)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Connect(fd, sockaddr(at)); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
				t.Fatal(err)
			}
		}
	}
}
