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

// restrictDevices lets the processes of a machine open only the usual devices and the devices of
// the machine's disks. Processes can still make the nodes of other devices. Without cgroup v2,
// restrictDevices does nothing.
//
// restrictDevices uses cgroup v2 even if the host's controllers use cgroup v1. With a device list
// in cgroup v1, privileged containers could not start.
func (d *machineDevices) restrictDevices() error {
	i := slices.IndexFunc(d.cgroup.hierarchies, func(h hierarchy) bool { return h.unified })
	if i < 0 {
		return nil // without cgroup v2, the machine's processes may make and open nodes of other devices
	}
	allowed := usualRules()
	for _, have := range d.have {
		for _, n := range have.numbers() {
			allowed = append(allowed, allow(deviceconfig.BlockDevice, loop.Major, int64(n), "rw"))
		}
	}
	if err := cgroups.DevicesSetV2(d.cgroup.pathIn(d.cgroup.hierarchies[i]), &cgroups.Resources{Devices: allowed}); err != nil {
		return fmt.Errorf("restricting the devices of the machine: %w", err)
	}
	return nil
}

// usualRules returns the rules for the devices that each machine has. It also returns the rules
// that permit processes to make device nodes.
func usualRules() []*deviceconfig.Rule {
	all := []*deviceconfig.Rule{
		allow(deviceconfig.CharDevice, deviceconfig.Wildcard, deviceconfig.Wildcard, "m"),
		allow(deviceconfig.BlockDevice, deviceconfig.Wildcard, deviceconfig.Wildcard, "m"),
		allow(deviceconfig.CharDevice, 136, deviceconfig.Wildcard, "rw"), // terminals: devices.txt of the kernel
		allow(deviceconfig.CharDevice, 5, 2, "rw"),                       // /dev/ptmx
	}
	for _, name := range usualDevices {
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
