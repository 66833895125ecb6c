package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestRunsFindsEachResource proves that the function Runs returns true if any one kind of resource
// remains. After Clean, Runs must return false.
func TestRunsFindsEachResource(t *testing.T) {
	if testing.Short() {
		t.Skip("short mode: the test creates loop devices")
	}
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	onHostOfItsOwn(t)
	name, link := fmt.Sprintf("cloudsim-runs-%d", os.Getpid()), "csim-test"
	all, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	host, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for resource, leave := range map[string]func(dir string) error{
		"nothing":         nil,
		"an empty cgroup": func(string) error { return cgroup{all, name}.child("i-000001").create() },
		"the link to the host": func(string) error {
			return host.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}, PeerName: hostPort})
		},
		"the network namespace": func(dir string) error {
			ns, err := newNetNS(filepath.Join(dir, vpcFile))
			if err != nil {
				return err
			}
			return ns.Close()
		},
		"an attached disk": func(string) error {
			disks := disksDir(name)
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(disks)) })
			if err := os.MkdirAll(disks, 0o700); err != nil {
				return err
			}
			file := filepath.Join(disks, "disk-000001.img")
			if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
				return err
			}
			loopOn(t, file)
			return nil
		},
	} {
		dir := t.TempDir()
		t.Cleanup(func() { _ = Clean(context.WithoutCancel(t.Context()), dir, name, link) })
		if leave != nil {
			if err := leave(dir); err != nil {
				t.Fatal(err)
			}
		}
		if runs, err := Runs(dir, name, link); runs != (leave != nil) || err != nil {
			t.Errorf("Runs after a hypervisor left %s: got %v, error %v; want %v", resource, runs, err, leave != nil)
		}
		if err := Clean(t.Context(), dir, name, link); err != nil {
			t.Fatal(err)
		}
		// The test waits, because udev opens a loop device when the device changes. The kernel
		// removes the device only after udev has closed it.
		eventually.NoError(t, "Runs returns false after Clean of "+resource, func() error {
			runs, err := Runs(dir, name, link)
			if err == nil && runs {
				err = errors.New("got true, want false")
			}
			return err
		})
	}
}
