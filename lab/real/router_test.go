package real

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// If a running instance has had no machine for the time missingAfter, missingMachines.update
// reports the instance once. If the instance has a machine again after this report, update reports
// the recovery once.
func TestMissingMachinesAreReported(t *testing.T) {
	began := time.Now()
	running := []cloudsim.Instance{{ID: "i-000001"}, {ID: "i-000002"}}
	one, both := map[string]bool{"i-000001": true}, map[string]bool{"i-000001": true, "i-000002": true}
	m := missingMachines{}
	for _, step := range []struct {
		after       time.Duration
		running     []cloudsim.Instance
		links       map[string]bool
		lost, found int
	}{
		{0, running, one, 0, 0},
		{missingAfter - 1, running, one, 0, 0},
		{missingAfter, running, one, 1, 0},
		{2 * missingAfter, running, one, 0, 0},
		{3 * missingAfter, running, both, 0, 1},
		{4 * missingAfter, running, one, 0, 0},
		{5 * missingAfter, running[:1], one, 0, 0}, // a user stopped the instance
		{6 * missingAfter, running, one, 0, 0},
		{6*missingAfter + 1, running, both, 0, 0},
	} {
		lost, found := m.update(began.Add(step.after), step.running, step.links)
		if len(lost) != step.lost || len(found) != step.found || slices.ContainsFunc(append(lost, found...), func(i cloudsim.Instance) bool { return i.ID != "i-000002" }) {
			t.Errorf("after %s: lost %v, found %v; want %d, %d", step.after, lost, found, step.lost, step.found)
		}
	}
}

// Two hypervisors share a bridge. If a machine or the router ends, the other machines stay
// reachable. The next router restores the routes to pods.
func TestBridgeOnHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	onHostOfItsOwn(t)
	file, n := filepath.Join(t.TempDir(), "vpc"), Network{
		VPC: netip.MustParsePrefix("10.98.0.0/16"), Router: netip.MustParseAddr("10.98.255.1"), Host: netip.MustParseAddr("10.98.255.2"),
		LoadBalancers: netip.MustParsePrefix("10.98.128.0/18"), Pods: netip.MustParsePrefix("10.97.0.0/16"), Link: "vpc", BridgeOnHost: true,
	}
	pods := netip.MustParsePrefix("10.97.2.0/24")
	route := func() *vpc {
		t.Helper()
		v, err := openVPC(file, n)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.setRoutes(map[netip.Prefix]netip.Addr{pods: netip.MustParseAddr("10.98.0.2")}); err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := route()
	t.Cleanup(func() { _ = dropNetNS(file) })
	var machines [2]*exec.Cmd
	for i := range machines {
		machines[i] = bareMachine(t)
		hypervisor, err := hostBridge(n) // each hypervisor has its own handle
		if err != nil {
			t.Fatal(err)
		}
		defer hypervisor.link.Close()
		if err := hypervisor.attach(fmt.Sprintf("i-%d", i+1), machines[i].Process.Pid, netip.AddrFrom4([4]byte{10, 98, 0, byte(i + 1)})); err != nil {
			t.Fatal(err)
		}
	}
	other := inNetNS(t, machines[1].Process.Pid)
	listenIn(t, other, "10.98.0.2:80")
	pod := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 97, 2, 1), Mask: net.CIDRMask(32, 32)}}
	lo, err := other.handle.LinkByName("lo")
	if err := errors.Join(err, other.handle.AddrAdd(lo, pod)); err != nil {
		t.Fatal(err)
	}
	listenIn(t, other, "10.97.2.1:80")
	first := inNetNS(t, machines[0].Process.Pid)
	waitReachable(t, "the other machine", first, "10.98.0.2:80", true)
	waitReachable(t, "a pod on the other machine, through the router", first, "10.97.2.1:80", true)
	waitReachable(t, "the host, to a machine", currentPlace(t), "10.98.0.2:80", true)

	// Simulate a killed router: remove the mount and the handles of the router's namespace.
	if err := errors.Join(unix.Unmount(file, unix.MNT_DETACH), v.close()); err != nil {
		t.Fatal(err)
	}
	waitReachable(t, "the other machine, without a router", first, "10.98.0.2:80", true)
	waitReachable(t, "a pod on the other machine, without a router", first, "10.97.2.1:80", false)
	last := route()
	waitReachable(t, "a pod on the other machine, through the second router", first, "10.97.2.1:80", true)
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil { // the handles of last keep the namespace
		t.Fatal(err)
	}
	v = route()
	waitReachable(t, "a pod on the other machine, through the third router", first, "10.97.2.1:80", true)
	if err := last.close(); err != nil {
		t.Error(err)
	}
	_ = machines[0].Process.Kill()
	_ = machines[0].Wait()
	first.close()
	eventually.NoError(t, "the kernel removes the cable of a dead machine", func() error {
		all, err := v.bridge.linkNames()
		if err == nil && all["i-1"] {
			err = errors.New("it is there")
		}
		return err
	})
	waitReachable(t, "the host, to a machine beside a dead machine", currentPlace(t), "10.98.0.2:80", true)
	if err := errors.Join(v.close(), dropNetNS(file)); err != nil {
		t.Error(err)
	}
	waitReachable(t, "the host, to a machine without a router", currentPlace(t), "10.98.0.2:80", true)
}

// onHostOfItsOwn moves the test's goroutine into a new network namespace.
func onHostOfItsOwn(t *testing.T) {
	t.Helper()
	back, err := leaveNamespace(newNetwork)
	t.Cleanup(back)
	if err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := setLinkUp(h, "lo"); err != nil {
		t.Fatal(err)
	}
}

// bareMachine starts a process in its own network namespace.
func bareMachine(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

type place struct {
	ns     netns.NsHandle
	handle *netlink.Handle
}

func inNetNS(t *testing.T, pid int) *place {
	t.Helper()
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		t.Fatal(err)
	}
	return newPlace(t, ns)
}

func currentPlace(t *testing.T) *place {
	t.Helper()
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	return newPlace(t, ns)
}

func newPlace(t *testing.T, ns netns.NsHandle) *place {
	t.Helper()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{ns, h}
	t.Cleanup(p.close)
	return p
}

// close closes the handles. Further calls have no effect.
func (p *place) close() {
	p.handle.Close()
	_ = p.ns.Close()
}

func listenIn(t *testing.T, p *place, address string) {
	t.Helper()
	err := inNamespace(p.ns, func() error {
		l, err := net.Listen("tcp", address)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitReachable waits until a connection to the address succeeds. If wantReachable is false, it
// waits until a connection fails instead.
func waitReachable(t *testing.T, condition string, from *place, address string, wantReachable bool) {
	t.Helper()
	eventually.NoError(t, condition, func() error {
		err := connect(from, address)
		if (err == nil) != wantReachable {
			return fmt.Errorf("reached %v, want %v: %w", err == nil, wantReachable, err)
		}
		return nil
	})
}

func connect(from *place, address string) error {
	return inNamespace(from.ns, func() error {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
}
