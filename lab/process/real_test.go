package process

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// layVPC creates the network that a killed lab with real nodes would leave on the host. It returns
// the file at which layVPC mounted the network namespace.
func layVPC(t *testing.T, d Dir) (mounted string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: the test creates a network")
	}
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	n, release, err := lab.ClaimRealNetworks(t.Context(), lab.Networks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	t.Cleanup(func() {
		if err := real.Clean(context.WithoutCancel(t.Context()), d.machines(), d.machineName(), d.cable()); err != nil {
			t.Error(err)
		}
	})
	if err := real.Lay(d.machines(), n.VPCNetwork(d.cable())); err != nil {
		t.Fatal(err)
	}
	return d.path("real", "vpc.netns")
}

// listLeftovers lists the parts of a lab's network that are still on the host.
func (d Dir) listLeftovers(t *testing.T) (leftovers []string) {
	t.Helper()
	if _, err := net.InterfaceByName(d.cable()); err == nil {
		leftovers = append(leftovers, "link")
	}
	if _, err := os.Stat(d.path("real", "vpc.netns")); err == nil {
		leftovers = append(leftovers, "namespace")
	}
	return leftovers
}

// Down finds the machines of a lab by their names on the host. So it can also stop them if
// run.json is damaged.
func TestDownWithADamagedRecordEndsMachines(t *testing.T) {
	d := newDir(t)
	layVPC(t, d)
	if err := os.WriteFile(d.path("run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if stopped, err := Down(t.Context(), d, time.Minute); !stopped || err != nil {
		t.Errorf("Down = %v, %v", stopped, err)
	}
	if left := d.listLeftovers(t); len(left) > 0 {
		t.Errorf("Down did not remove %v", left)
	}
	if stopped, err := Down(t.Context(), d, time.Minute); stopped || err != nil {
		t.Errorf("second Down = %v, %v; want false", stopped, err)
	}
}

// Normally the hypervisor of a new lab takes over the machines that an earlier lab left. If the new
// lab stops before that, it ends these machines without its hypervisor.
func TestMachinesWithoutAHypervisorEnd(t *testing.T) {
	d := newDir(t)
	layVPC(t, d)
	c := Default()
	c.DataDir, c.Nodes, c.Self, c.Kube, c.Volumes = d, lab.Real, "allinone", "kube", false
	ports, err := freePorts()
	if err != nil {
		t.Fatal(err)
	}
	n, release, err := lab.ClaimRealNetworks(t.Context(), lab.Networks{})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p := &plan{Config: c, dir: d, ports: ports, networks: n, say: t.Logf, pki: lab.PKI{Dir: d.path("pki"), Now: time.Now()}}
	if _, err := p.pki.Ensure(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := p.supervise(ctx, slog.New(slog.DiscardHandler), t.Logf); err != nil {
		t.Error(err)
	}
	if left := d.listLeftovers(t); len(left) > 0 {
		t.Errorf("the new lab did not remove %v of the earlier lab", left)
	}
}

// If Reset cannot end a part of the lab, Reset deletes no files.
func TestResetKeepsDataOfRunningParts(t *testing.T) {
	d := newDir(t)
	file := layVPC(t, d)
	if err := unix.Mount(file, file, "", unix.MS_BIND, ""); err != nil { // the mount prevents the immediate removal of the file
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	if err := os.WriteFile(d.path("run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Reset(t.Context(), d, time.Minute); err == nil {
		t.Error("Reset returned no error although the network exists")
	}
	for _, sub := range []string{"bin", "cloud", "config", "etcd", markerFile} {
		if _, err := os.Stat(d.path(sub)); err != nil {
			t.Errorf("Reset deleted the data directory although the network exists: %v", err)
		}
	}
}
