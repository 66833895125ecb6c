package real

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // implements cgroups.DevicesSetV2
	deviceconfig "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/loop"
)

// restrict lets the processes of a machine open only the usual devices and the devices of its
// disks. It attaches a program to the machine's cgroup. The program needs cgroup v2, but
// also works if the host uses v1 for the controllers. The devices controller of cgroup v1 is no
// alternative: below a cgroup with a list of allowed devices, it refuses privileged containers.
//
// A process can still make any device node, as in a container.
func (d *devices) restrict() error {
	i := slices.IndexFunc(d.cgroup.hierarchies, func(h hierarchy) bool { return h.unified })
	if i < 0 {
		return nil // the machine still has no nodes of other devices
	}
	allowed := usualRules()
	for _, have := range d.have {
		for _, n := range []int{have.number, have.spare} {
			allowed = append(allowed, allow(deviceconfig.BlockDevice, loop.Major, int64(n), "rw"))
		}
	}
	if err := cgroups.DevicesSetV2(d.cgroup.in(d.cgroup.hierarchies[i]), &cgroups.Resources{Devices: allowed}); err != nil {
		return fmt.Errorf("restricting the devices of the machine: %w", err)
	}
	return nil
}

// usualRules returns the rules for the devices that each machine has.
func usualRules() []*deviceconfig.Rule {
	all := []*deviceconfig.Rule{
		allow(deviceconfig.CharDevice, deviceconfig.Wildcard, deviceconfig.Wildcard, "m"),
		allow(deviceconfig.BlockDevice, deviceconfig.Wildcard, deviceconfig.Wildcard, "m"),
		allow(deviceconfig.CharDevice, 136, deviceconfig.Wildcard, "rw"), // terminals: devices.txt of the kernel
		allow(deviceconfig.CharDevice, 5, 2, "rw"),                       // /dev/ptmx
	}
	for _, name := range usual {
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join("/dev", name), &s); errors.Is(err, unix.ENOENT) {
			continue // the machine does not have the device either
		}
		all = append(all, allow(deviceconfig.CharDevice, int64(unix.Major(s.Rdev)), int64(unix.Minor(s.Rdev)), "rw"))
	}
	return all
}

func allow(kind deviceconfig.Type, major, minor int64, access deviceconfig.Permissions) *deviceconfig.Rule {
	return &deviceconfig.Rule{Type: kind, Major: major, Minor: minor, Permissions: access, Allow: true}
}
