package real

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// OpenContainer makes the container that this process is alone in what machines
// need of a host: its cgroups and the settings of its network can be written, and
// all of the kernel's devices have nodes. It takes CAP_SYS_ADMIN. Which devices
// can be opened is said by the container's own device rules, before and after.
func OpenContainer() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := errors.Join(openCgroup(h), h.moveIn()); err != nil {
			return fmt.Errorf("cgroups at %s: %w", h.path, err)
		}
	}
	// A container's own /proc has places that cannot be written.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	return openDevices()
}

// openCgroup makes a hierarchy that can be read only, as containers are given it,
// one that can be written.
func openCgroup(h hierarchy) error {
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("", h.path, "", flags, "")
}

// moveIn moves the container's processes from its cgroup into one below: on v2 a
// cgroup has processes or passes controllers on, and not both, but for the
// host's own.
func (h hierarchy) moveIn() error {
	if !h.unified {
		return nil
	}
	has, err := os.ReadFile(filepath.Join(h.path, "cgroup.controllers"))
	if err != nil || len(strings.TrimSpace(string(has))) == 0 {
		return err // v1 has the controllers
	}
	whole := cgroup{[]hierarchy{h}, ""}
	into := whole.below("container")
	if err := os.Mkdir(into.in(h), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	pids, err := whole.processes() // no machine is on yet
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := into.join(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("moving process %d: %w", pid, err)
		}
	}
	return nil
}

// openDevices puts the kernel's own folder of devices over the container's few,
// and the container's terminals and shared memory back into it.
func openDevices() error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return filepath.Dir(m.Mountpoint) != "/dev", false })
	if err != nil {
		return err
	}
	own, err := os.MkdirTemp("", "dev")
	if err != nil {
		return err
	}
	defer os.Remove(own) //nolint:errcheck // an empty folder in memory
	if err := unix.Mount("devtmpfs", own, "devtmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("the kernel's devices: %w", err)
	}
	for _, m := range mounts {
		to := filepath.Join(own, filepath.Base(m.Mountpoint))
		if _, err := os.Stat(to); err != nil {
			continue // the host has no such place
		}
		if err := unix.Mount(m.Mountpoint, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", m.Mountpoint, err)
		}
	}
	if err := unix.Mount(own, "/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("the kernel's devices at /dev: %w", err)
	}
	return nil
}
