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

// OpenContainer prepares the container of this process to run machines. It makes the cgroups and
// the network settings writable, and makes all of the kernel's devices visible in /dev. It needs
// CAP_SYS_ADMIN. It does not change the container's device rules, which may forbid some devices.
func OpenContainer() error {
	all, err := listHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := errors.Join(openCgroup(h), h.moveIn()); err != nil {
			return fmt.Errorf("cgroups at %s: %w", h.path, err)
		}
	}
	// The container runtime makes parts of /proc read-only, but a new mount is writable.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	return openDevices()
}

// openCgroup makes a hierarchy writable. The container runtime mounts hierarchies read-only.
func openCgroup(h hierarchy) error {
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("", h.path, "", flags, "")
}

// moveIn moves all processes of the container's cgroup into a child cgroup. On cgroup v2, a
// cgroup that contains processes cannot enable controllers for its child cgroups. Only the
// host's root cgroup can contain processes and also enable controllers for its child
// cgroups.
func (h hierarchy) moveIn() error {
	if !h.unified {
		return nil
	}
	has, err := os.ReadFile(filepath.Join(h.path, "cgroup.controllers"))
	if err != nil || len(strings.TrimSpace(string(has))) == 0 {
		return err // the host uses v1 for the controllers
	}
	whole := cgroup{[]hierarchy{h}, ""}
	into := whole.child("container")
	if err := os.Mkdir(into.pathIn(h), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	pids, err := whole.pids() // no machine runs yet
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := into.join(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("moving process %d into a child cgroup: %w", pid, err)
		}
	}
	return nil
}

// openDevices mounts the kernel's device folder over /dev of the container. It moves the
// container's terminals and shared memory into the new folder.
func openDevices() error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return filepath.Dir(m.Mountpoint) != "/dev", false })
	if err != nil {
		return err
	}
	own, err := os.MkdirTemp("", "dev")
	if err != nil {
		return err
	}
	defer os.Remove(own) //nolint:errcheck // the folder is empty, so a failure does not matter
	if err := unix.Mount("devtmpfs", own, "devtmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting the kernel's devices: %w", err)
	}
	for _, m := range mounts {
		to := filepath.Join(own, filepath.Base(m.Mountpoint))
		if _, err := os.Stat(to); err != nil {
			continue // the host has no such folder
		}
		if err := unix.Mount(m.Mountpoint, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving the mount %s: %w", m.Mountpoint, err)
		}
	}
	if err := unix.Mount(own, "/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the kernel's devices to /dev: %w", err)
	}
	return nil
}
