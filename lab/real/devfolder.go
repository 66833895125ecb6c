package real

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// usualDevices lists devices of the host that each machine also has.
var usualDevices = []string{"null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse", "net/tun"}

// mountDev mounts a new /dev for a machine at the given path of the host.
func mountDev(path string) error {
	if isMounted(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("dev", path, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("devices of the machine: %w", err)
	}
	if err := fillDev(path); err != nil {
		return errors.Join(fmt.Errorf("devices of the machine: %w", err), unix.Unmount(path, unix.MNT_DETACH))
	}
	return nil
}

func fillDev(path string) error {
	dev, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	for _, dir := range []string{"pts", "shm", "mqueue", "net", byID} {
		if err := dev.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range usualDevices {
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join("/dev", name), &s); errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return &fs.PathError{Op: "stat", Path: "/dev/" + name, Err: err}
		}
		if err := makeNode(dev, name, s.Mode, s.Rdev); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := dev.Symlink(target, name); err != nil {
			return err
		}
	}
	return errors.Join(
		unix.Mount("devpts", filepath.Join(path, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"),
		unix.Mount("shm", filepath.Join(path, "shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
	)
}

// makeNode makes a device node in a machine's /dev. The machine can put links into this folder,
// so makeNode follows no link that leads out of the folder.
func makeNode(dev *os.Root, name string, mode uint32, number uint64) error {
	dir, err := dev.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	base := filepath.Base(name)
	if err := unix.Mknodat(int(dir.Fd()), base, mode, int(number)); err != nil { //nolint:gosec // device numbers are small
		return &fs.PathError{Op: "mknod", Path: name, Err: err}
	}
	perm := fs.FileMode(mode & 0o777) // mknod(2) applies the umask
	return dev.Chmod(name, perm)
}

// unmountDev removes the /dev of a machine from the host. If the machine's /dev is not mounted,
// unmountDev returns nil.
func unmountDev(f folder) error {
	path := f.path("dev")
	if !isMounted(path) {
		return nil
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return &fs.PathError{Op: "unmount", Path: path, Err: err}
	}
	return nil
}

// isMounted reports whether a file system is mounted at the given path. It returns false if the
// path does not exist.
func isMounted(path string) bool {
	var here, above unix.Stat_t
	return unix.Lstat(path, &here) == nil && unix.Lstat(filepath.Dir(path), &above) == nil && here.Dev != above.Dev
}
