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

// vpcFile is where the VPC's network namespace is mounted, in Config.Dir.
const vpcFile = "vpc.netns"

// Clean ends what a hypervisor with this Dir, Name and Link left: its machines and
// all their processes, their cgroups, the network and its links. It finds them
// by their places and not by what was written down, so it needs no record. What
// is not there is no error. Disks stay.
func Clean(ctx context.Context, dir, name, link string) error {
	return errors.Join(cleanMachines(ctx, name), destroyVPC(filepath.Join(dir, vpcFile), link))
}

// cleanMachines ends what a hypervisor of that name left, but for its network.
func cleanMachines(ctx context.Context, name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	return errors.Join(cgroup{all, name}.destroy(ctx), detachDisks(name, nil))
}

// Runs reports whether Clean would find anything: also what an earlier one could
// not take away.
func Runs(dir, name, link string) (bool, error) {
	all, err := hierarchies()
	if err != nil {
		return false, err
	}
	if (cgroup{all, name}).exists() || isNetNS(filepath.Join(dir, vpcFile)) {
		return true, nil
	}
	there, err := hasLink(link)
	if there || err != nil {
		return there, err
	}
	loops, err := disksOf(name)
	if errors.Is(err, fs.ErrPermission) { // who may not look at loop devices attached none
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

// disksOf returns the loop devices of the disks of a hypervisor's machines.
func disksOf(name string) ([]loop.Status, error) {
	all, err := loop.List()
	return slices.DeleteFunc(all, func(l loop.Status) bool { return !isDiskOf(name, l) }), err
}
