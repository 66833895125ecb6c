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

// mountDev mounts a new /dev for a machine at a path of the host.
func mountDev(at string) error {
	if isMounted(at) {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("dev", at, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("devices of the machine: %w", err)
	}
	if err := fillDev(at); err != nil {
		return errors.Join(fmt.Errorf("devices of the machine: %w", err), unix.Unmount(at, unix.MNT_DETACH))
	}
	return nil
}

func fillDev(at string) error {
	dev, err := os.OpenRoot(at)
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
		unix.Mount("devpts", filepath.Join(at, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"),
		unix.Mount("shm", filepath.Join(at, "shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
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

// unmountDev removes the /dev of a machine from the host. If nothing is mounted there, unmountDev
// returns nil.
func unmountDev(f folder) error {
	at := f.path("dev")
	if !isMounted(at) {
		return nil
	}
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
		return &fs.PathError{Op: "unmount", Path: at, Err: err}
	}
	return nil
}

// isMounted reports whether a file system is mounted at a path. It returns false if the path does
// not exist.
func isMounted(at string) bool {
	var here, above unix.Stat_t
	return unix.Lstat(at, &here) == nil && unix.Lstat(filepath.Dir(at), &above) == nil && here.Dev != above.Dev
}
