package real

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cloudsim-dev/allinone/internal/loop"
)

// vpcFile is the file in Config.Dir at which the VPC's network namespace is mounted.
const vpcFile = "vpc.netns"

// Clean removes the resources that remain from a hypervisor with the given dir, name and link.
// These resources are processes of machines, cgroups, loop devices, mounts, the network and the
// link. Clean finds these resources by their names and paths. The second loop device of a disk (see
// device.spareLoop) is an exception, because it has no backing file until the kubelet uses it. So
// Clean reads the number of this device from a file in the machine's folder. If a resource is
// missing, Clean continues with the other resources. It does not delete the data in disks.
func Clean(ctx context.Context, dir, name, link string) error {
	return errors.Join(cleanMachines(ctx, dir, name), destroyVPC(filepath.Join(dir, vpcFile), link))
}

// cleanMachines removes the same resources as Clean, except the network and the link.
func cleanMachines(ctx context.Context, dir, name string) error {
	all, err := listHierarchies()
	if err != nil {
		return err
	}
	return errors.Join(cgroup{all, name}.destroy(ctx), cleanDevices(ctx, dir), detachDisks(name, nil, func(string) bool { return false }))
}

// Runs reports whether the host has a cgroup, a network namespace, a link or a loop device
// that Clean would remove. If an earlier Clean has failed, the result can be true although no
// machine runs.
func Runs(dir, name, link string) (bool, error) {
	all, err := listHierarchies()
	if err != nil {
		return false, err
	}
	if (cgroup{all, name}).isPresent() || isNetNS(filepath.Join(dir, vpcFile)) {
		return true, nil
	}
	exists, err := hasLink(link)
	if exists || err != nil {
		return exists, err
	}
	loops, err := disksOf(name)
	if errors.Is(err, fs.ErrPermission) { // a user without this permission has attached no loop devices
		return false, nil
	}
	return len(loops) > 0, err
}

func hasLink(name string) (bool, error) {
	host, err := netlink.NewHandle()
	if err != nil {
		return false, err
	}
	defer host.Close()
	_, err = host.LinkByName(name)
	if isNoLink(err) {
		return false, nil
	}
	return err == nil, err
}

// disksOf returns the loop devices for the disks of a hypervisor's machines.
func disksOf(name string) ([]loop.Status, error) {
	all, err := loop.List()
	return slices.DeleteFunc(all, func(l loop.Status) bool { return !isDiskOf(name, l) }), err
}
