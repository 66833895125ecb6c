package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/loop"
)

// Loop is an open loop device. Its method Of lists the mounts of the device.
type Loop struct {
	*loop.Loop
	// managed is true if the hypervisor of this machine made the device. In this case the package
	// does not detach the device, and does not change the device's lapse flag (LO_FLAGS_AUTOCLEAR).
	managed bool
}

// Lapse calls loop.Lapse, so that the kernel removes the device when no program
// and no mount uses it. If the hypervisor manages the device, Lapse does
// nothing.
func (l *Loop) Lapse() error {
	if l.managed {
		return nil
	}
	return l.Loop.Lapse()
}

// Stay calls loop.Stay, so that the device stays even when no program and no mount uses it. If the
// hypervisor manages the device, Stay does nothing.
func (l *Loop) Stay() error {
	if l.managed {
		return nil
	}
	return l.Loop.Stay()
}

// Lapses returns true if the hypervisor manages the device, or if the device has the lapse flag
// (LO_FLAGS_AUTOCLEAR). The driver does not detach such a device.
func (l *Loop) Lapses() (bool, error) {
	if l.managed {
		return true, nil
	}
	return l.Loop.Lapses()
}

// Detach calls loop.Detach. If the hypervisor manages the device, Detach only
// closes the device.
func (l *Loop) Detach() error {
	if l.managed {
		return l.Close()
	}
	return l.Loop.Detach()
}

// contentPath returns the path from which this process reads the content of the
// disk. If the hypervisor manages the device, this is the path of the device.
// Otherwise it is the given path of the disk's file.
func (l *Loop) contentPath(path string) string {
	if l.managed {
		return l.Device()
	}
	return path
}

// tick is the interval at which the package polls a state for which the kernel
// has no event.
const tick = 5 * time.Millisecond

// Attach calls AttachFor without a node name. If any node has a device for the file, Attach returns
// this device.
func Attach(ctx context.Context, path string, readOnly, lapses bool) (*Loop, error) {
	return AttachFor(ctx, "", path, readOnly, lapses)
}

// AttachFor returns a node's loop device for a file. If the node has no device for the file,
// AttachFor makes the device (see loop.Attach). If path is a link in /dev/disk/by-id, AttachFor
// ignores node, readOnly and lapses, and returns the device that the hypervisor made. If this
// device does not exist, AttachFor returns fs.ErrNotExist.
func AttachFor(ctx context.Context, node, path string, readOnly, lapses bool) (*Loop, error) {
	if isLink(path) {
		l, err := openLink(path)
		if err == nil && l == nil {
			err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return l, err
	}
	return wrap(loop.Attach(ctx, node, path, readOnly, lapses))
}

// isLink reports whether a path is a link to a device that the hypervisor made. Any other path is
// the file of a disk.
func isLink(path string) bool { return filepath.Dir(path) == "/dev/disk/by-id" }

// openLink opens the device to which a link leads. It returns nil if the link does not exist.
func openLink(path string) (*Loop, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(s.Rdev) != loop.Major {
		return nil, fmt.Errorf("%s is not a link to a loop device, so the hypervisor has not created it", path)
	}
	l, err := loop.Open(int(unix.Minor(s.Rdev)))
	if err != nil || l == nil {
		return nil, err
	}
	if err := l.Refresh(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Loop{l, true}, nil
}

// findLink returns the device of a disk. The argument path is the link for this
// disk, and the argument near is a list of paths. If a device of the disk is
// mounted at one of these paths, findLink returns this device. Otherwise it
// returns the device to which the link leads. After the hypervisor has removed a
// device, the mounts of the device still exist, but this process cannot open the
// device. In this case findLink returns a Loop that is not open.
func findLink(path string, near []string) (*Loop, error) {
	want := strings.TrimPrefix(filepath.Base(path), "cloudsim-") + ".img"
	for _, at := range near {
		n, ok := loop.At(at)
		if !ok {
			continue
		}
		name, err := loop.BackingFile(n)
		if err != nil || filepath.Base(strings.TrimSuffix(name, " (deleted)")) != want {
			continue
		}
		if l, err := loop.Open(n); err == nil && l != nil {
			return &Loop{l, true}, nil
		}
		return &Loop{&loop.Loop{Number: n}, true}, nil
	}
	return openLink(path)
}

// Find calls FindFor without a node name. It can return the device of any node.
func Find(path string, near ...string) (*Loop, error) { return FindFor("", path, near...) }

// FindFor returns a node's loop device for a file (see loop.Find). It returns nil if the node has
// no device for the file. The path can also be a link in /dev/disk/by-id.
func FindFor(node, path string, near ...string) (*Loop, error) {
	if isLink(path) {
		return findLink(path, near)
	}
	return wrap(loop.Find(node, path, near...))
}

func wrap(d *loop.Loop, err error) (*Loop, error) {
	if err != nil || d == nil {
		return nil, err
	}
	return &Loop{d, false}, nil
}

// SizeOf returns the size in bytes of the file of a disk. If path is a link to a device, SizeOf
// returns the size of the device.
func SizeOf(path string) (int64, error) {
	if !isLink(path) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
	l, err := AttachFor(context.Background(), "", path, false, false)
	if err != nil {
		return 0, err
	}
	size, err := l.Size()
	return size, errors.Join(err, l.Close())
}

// FileAt returns the name of the disk file that is mounted at path. The mount must be a loop
// device's filesystem or a bind mount of a loop device file. Otherwise FileAt returns "". If the
// disk file was deleted, FileAt returns its former name.
func FileAt(path string) (string, error) {
	at, err := mountPoint(path)
	if err != nil || at == "" {
		return "", err
	}
	n, ok := loop.At(at)
	if !ok {
		return "", nil
	}
	name, err := loop.BackingFile(n)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the device was removed
	}
	return strings.TrimSuffix(name, " (deleted)"), err
}

// realpath returns path in the form in which the kernel's mount table shows
// paths. It resolves the symbolic links in the folder of path, and removes a
// slash at the end. It does not resolve the last element of path, which may be a
// link or a missing file.
func realpath(path string) (string, error) {
	path = filepath.Clean(path)
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}
