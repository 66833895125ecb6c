package real

import (
	"context"
	"errors"
	"path/filepath"
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

// Runs reports whether something of a hypervisor with this Dir and Name is left.
func Runs(dir, name string) (bool, error) {
	all, err := hierarchies()
	if err != nil {
		return false, err
	}
	pids, err := cgroup{all, name}.processes()
	return len(pids) > 0 || isNetNS(filepath.Join(dir, vpcFile)), err
}
