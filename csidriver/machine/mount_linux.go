package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/loop"
)

// mountFlags maps mount options to the kernel's flag bits. If the field clear
// is true, the option clears these bits. Otherwise the option sets these bits.
var mountFlags = map[string]struct {
	bits  uintptr
	clear bool
}{
	"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true}, "defaults": {}, "async": {unix.MS_SYNCHRONOUS, true},
	"nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
	"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true},
	"noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
	"noatime": {unix.MS_NOATIME, false}, "atime": {unix.MS_NOATIME, true},
	"nodiratime": {unix.MS_NODIRATIME, false}, "diratime": {unix.MS_NODIRATIME, true},
	"relatime": {unix.MS_RELATIME, false}, "strictatime": {unix.MS_STRICTATIME, false},
	"sync": {unix.MS_SYNCHRONOUS, false}, "dirsync": {unix.MS_DIRSYNC, false}, "lazytime": {unix.MS_LAZYTIME, false},
}

// parse splits options into the kernel's flag bits and the options for the
// filesystem.
func parse(options []string) (bits uintptr, own string) {
	var rest []string
	for _, o := range options {
		f, ok := mountFlags[o]
		switch {
		case !ok:
			rest = append(rest, o)
		case f.clear:
			bits &^= f.bits
		default:
			bits |= f.bits
		}
	}
	return bits, strings.Join(rest, ",")
}

// MountDevice mounts the filesystem on the device of l. The mount is read-only
// if the device is read-only. MountDevice returns ErrJournal if the device is
// read-only and the filesystem has an unfinished journal. It returns ErrOptions
// if the kernel refuses the options (see ErrOptions).
func MountDevice(l *Loop, path, fsType string, options []string) error {
	readOnly, err := l.IsReadOnly()
	if err != nil {
		return err
	}
	_, fsOptions := parse(options)
	if fsType == XFS {
		options = append([]string{"nouuid"}, options...) // the original of a copied disk may be mounted with the same UUID
	}
	if readOnly {
		options = ReadOnly(options)
	}
	bits, own := parse(options)
	err = unix.Mount(l.Device(), path, fsType, bits, own)
	if readOnly && errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w: mount %s: %w", ErrJournal, fsType, err)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("mount %s with options %q: %w", fsType, strings.Join(options, ","), err)
	if fsOptions != "" && errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return err
}

// mountAttributes maps flag bits to the attributes of mount_setattr(2).
var mountAttributes = map[uintptr]uint64{
	unix.MS_RDONLY: unix.MOUNT_ATTR_RDONLY, unix.MS_NOSUID: unix.MOUNT_ATTR_NOSUID, unix.MS_NODEV: unix.MOUNT_ATTR_NODEV,
	unix.MS_NOEXEC: unix.MOUNT_ATTR_NOEXEC, unix.MS_NODIRATIME: unix.MOUNT_ATTR_NODIRATIME,
	unix.MS_NOATIME: unix.MOUNT_ATTR_NOATIME, unix.MS_STRICTATIME: unix.MOUNT_ATTR_STRICTATIME,
}

// Bind makes the file or directory at source also visible at path. The new mount has its own
// options. Bind ignores filesystem options, because all mounts of a filesystem share them. Before
// Linux 5.12, the mount is visible without its options for a short time.
func Bind(source, path string, options []string) error {
	bits, _ := parse(options)
	if bits == 0 {
		if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount of %s at %s: %w", source, path, err)
		}
		return nil
	}
	err := bindWith(source, path, bits)
	if !errors.Is(err, unix.ENOSYS) {
		if err != nil {
			return fmt.Errorf("bind mount of %s at %s with options %q: %w", source, path, strings.Join(options, ","), err)
		}
		return nil
	}
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount of %s at %s: %w", source, path, err)
	}
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|bits, ""); err != nil {
		return errors.Join(fmt.Errorf("bind mount of %s at %s with options %q: %w", source, path, strings.Join(options, ","), err), unix.Unmount(path, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// bindWith makes a detached mount, sets the options of the mount, and then
// moves the mount to path. If the process dies before the move, no mount stays.
func bindWith(source, path string, bits uintptr) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	var attr unix.MountAttr
	for bit, a := range mountAttributes {
		if bits&bit != 0 {
			attr.Attr_set |= a
		}
	}
	if attr.Attr_set&unix.MOUNT_ATTR__ATIME != 0 {
		attr.Attr_clr = unix.MOUNT_ATTR__ATIME
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// UnmountAll removes all mounts at path. It returns an error for a busy mount,
// because it never unmounts lazily.
func UnmountAll(path string) error {
	path, err := realpath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for was := error(nil); ; {
		mounted, err := mountedAt(path)
		if err != nil || !mounted {
			return err
		}
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if err != nil && (was != nil || !errors.Is(err, unix.EINVAL)) { // try again after one EINVAL, because another process may have removed the mount
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
		was = err
	}
}

// mountedAt reports whether a path is a mount point. The path must not contain symbolic links.
// mountedAt calls statx(2) for the path. If statx gives no answer, mountedAt reads the table of all
// mounts. statx gives no answer before Linux 5.8 and for a failing filesystem. mountedAt avoids the
// table if possible, because a read of the table is slow.
func mountedAt(path string) (bool, error) {
	s, err := statx(path)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err == nil && s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	found, err := mounts(func(m Mount) bool { return m.Path == path })
	return len(found) > 0, err
}

// statx returns the kernel's attributes of the file or folder at path. If path
// is a mount point, the attributes are those of the root folder of the last
// mount at path. The call contacts no file server and triggers no automount.
func statx(path string) (s unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &s)
	return s, err
}

// At returns the mounts at path. The last mount in the result is the visible
// mount.
func At(path string) ([]Mount, error) {
	path, err := mountPoint(path)
	if err != nil || path == "" {
		return nil, err
	}
	return mounts(func(m Mount) bool { return m.Path == path })
}

// Seen returns the visible mount at path, or nil if path has no mount. For a filesystem on a loop
// device, the result contains no Root and no option except "ro", because Seen avoids the slow mount
// table. The function At returns the Root and all options.
func Seen(path string) (*Mount, error) {
	at, err := mountPoint(path)
	if err != nil || at == "" {
		return nil, err
	}
	if m, ok := loopMount(at); ok {
		return &m, nil
	}
	found, err := At(at)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[len(found)-1], nil
}

// mountPoint returns the result of realpath for path. It returns "" if path is
// not a mount point.
func mountPoint(path string) (string, error) {
	path, err := realpath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if mounted, err := mountedAt(path); err != nil || !mounted {
		return "", err
	}
	return path, nil
}

// loopMount describes the mount at path, which must be a mount point. If this
// mount is not an ext4 or XFS filesystem on a loop device, ok is false.
func loopMount(path string) (m Mount, ok bool) {
	s, err := statx(path)
	if err != nil || s.Dev_major != loop.Major {
		return m, false
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return m, false
	}
	m = Mount{Path: path, Major: int(s.Dev_major), Minor: int(s.Dev_minor)}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		m.FSType = Ext4
	case unix.XFS_SUPER_MAGIC:
		m.FSType = XFS
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		m.Options = []string{"ro"}
	}
	return m, m.FSType != ""
}

// Of returns every mount of the device: mounts of its filesystem and bind
// mounts of its device file.
func (l *Loop) Of() ([]Mount, error) { return mounts(l.Has) }

// Has reports whether m is a mount of l.
func (l *Loop) Has(m Mount) bool {
	if m.IsDevice() {
		return m.Root == "/"+filepath.Base(l.Device()) && m.isInDev()
	}
	return m.Major == loop.Major && m.Minor == l.Number
}

// isInDev reports whether the mounted device file is in the filesystem at /dev. It compares
// the filesystems and not the names, because a pod can give any name to a file in its own tmpfs.
func (m Mount) isInDev() bool {
	if m.FSType == "devtmpfs" { // the kernel has only one devtmpfs
		return true
	}
	var s unix.Stat_t
	err := unix.Stat("/dev", &s)
	return err == nil && s.Dev == unix.Mkdev(uint32(m.Major), uint32(m.Minor)) //nolint:gosec // device numbers
}

func mounts(want func(Mount) bool) (found []Mount, err error) {
	_, err = mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		m := Mount{
			Path: i.Mountpoint, Root: i.Root, Major: i.Major, Minor: i.Minor, FSType: i.FSType,
			Options: strings.Split(i.Options, ","), Super: splitOptions(i.VFSOptions),
		}
		if want(m) {
			found = append(found, m)
		}
		return true, false
	})
	return found, err
}

// Usage is the disk usage of a filesystem.
type Usage struct {
	Total, Available, Used       int64
	Inodes, InodesFree, InodesIn int64
}

// UsageOf returns the usage of the filesystem that is mounted at path.
func UsageOf(path string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := int64(s.Bsize) //nolint:unconvert // the field has 32 bits on other architectures
	return Usage{
		Total: int64(s.Blocks) * block, Available: int64(s.Bavail) * block, Used: int64(s.Blocks-s.Bfree) * block,
		Inodes: int64(s.Files), InodesFree: int64(s.Ffree), InodesIn: int64(s.Files - s.Ffree),
	}, nil
}

// Ready returns an error if this process cannot make loop devices on this
// machine.
func Ready() error {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root")
	}
	return unix.Access("/dev/loop-control", unix.R_OK|unix.W_OK)
}
