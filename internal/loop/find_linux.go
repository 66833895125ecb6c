package loop

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Open opens the loop device with the number n. It returns nil if the device
// does not exist or disappears during the call.
func Open(n int) (*Loop, error) {
	dev, err := os.Open(Path(n))
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Loop{dev: dev, Number: n}, nil
}

// Status describes a loop device that has a backing file.
type Status struct {
	Number int
	Name   string // path of the file, as the program that attached the file passed it
	Node   string // the node that owns the device, or ""
	Fenced bool   // Fence has cut off the file, but a program still uses the device
	Of     uint64 // the device number of the file if the file is a device, else 0

	file unix.Stat_t // inode and device number of the file
}

// SameFile reports whether the file at path is attached to the device.
func (s Status) SameFile(path string) bool {
	b, err := backingOf(path)
	return err == nil && !b.gone && s.file.Ino == b.file.Ino && s.file.Dev == b.file.Dev
}

// List returns the devices of the host that have a file. It skips a device that
// disappears during the call.
func List() (all []Status, err error) {
	numbers, err := listNumbers()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if _, err := BackingFile(n); err != nil {
			continue // the device has no file
		}
		d, err := Open(n)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(d.dev.Fd()))
		if err = errors.Join(err, d.Close()); errors.Is(err, unix.ENXIO) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Path(n), err)
		}
		// List takes the name from the status of the device, not from sysfs. The name in sysfs is a
		// path in the mount namespace of the program that attached the file. When that mount
		// namespace no longer exists, sysfs contains only the end of the path.
		all = append(all, Status{
			Number: n, Name: unix.ByteSliceToString(info.File_name[:]), Node: ownerOf(info.File_name), Fenced: isFenced(info),
			Of: info.Rdevice, file: unix.Stat_t{Ino: info.Inode, Dev: info.Device},
		})
	}
	return all, nil
}

// Find returns the loop device of a file for a node, or nil. It skips fenced devices (see Fence)
// and the devices of other nodes. Find compares inodes and not only names, for two reasons. First,
// several nodes can run on one host and use equal file names. Second, after the file of a loop
// device is detached, another file can immediately get the same device. If no file exists at path,
// Find returns the device of a deleted file that had this path.
//
// Usually Find reads sysfs for each loop device. To avoid this work, the caller can list probable
// mounts of the device in nearPaths. If one of these paths is a mount of the device, Find does not
// read sysfs for other devices.
func Find(node, path string, nearPaths ...string) (*Loop, error) {
	b, err := backingOf(path)
	if err != nil {
		return nil, err
	}
	b.node = node
	for _, at := range nearPaths {
		if n, ok := At(at); ok && (!b.gone || b.mayBe(n, true)) { // when Find opens and closes a mounted device, the kernel does not remove the device, even with the lapse flag
			if d, err := b.deviceIfBacking(n); err == nil && d != nil {
				return d, nil
			}
		}
	}
	numbers, err := listNumbers()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if !b.mayBe(n, !b.gone) {
			continue
		}
		if d, err := b.deviceIfBacking(n); err != nil || d != nil {
			return d, err
		}
	}
	return nil, nil
}

// backingFile is a file for which Find looks for a loop device.
type backingFile struct {
	name string // the kernel's name for the file
	gone bool   // the file no longer exists
	file unix.Stat_t
	node string // the node for which Find looks for a device
}

// label returns the name of a device: the file's path, a zero byte, and the
// node that owns the device. Other programs read a device's name only up to the
// zero byte. The kernel stores 63 bytes of the name, so label truncates a long
// path.
func label(path, node string) (name [unix.LO_NAME_SIZE]byte) {
	if node == "" {
		copy(name[:len(name)-1], path)
		return name
	}
	n := copy(name[:max(len(name)-2-len(node), 0)], path)
	copy(name[n+1:len(name)-1], node)
	return name
}

// ownerOf returns the name of the node that owns the device, or "". In the name of the device, a
// zero byte precedes the name of the node (see label).
func ownerOf(name [unix.LO_NAME_SIZE]byte) string {
	_, rest, _ := bytes.Cut(name[:], []byte{0})
	return unix.ByteSliceToString(rest)
}

// backingOf returns the file at path. If the file no longer exists, backingOf sets b.gone. In this
// case, b.name is the name that the kernel has for the deleted file. backingOf returns an error if
// path is not a regular file, for example a link (see OpenFile).
func backingOf(path string) (b backingFile, err error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return b, err
	}
	b.name = filepath.Join(dir, filepath.Base(path))
	switch err := unix.Lstat(b.name, &b.file); {
	case errors.Is(err, unix.ENOENT):
		return backingFile{name: b.name + " (deleted)", gone: true}, nil
	case err != nil:
		return b, &fs.PathError{Op: "lstat", Path: b.name, Err: err}
	case b.file.Mode&unix.S_IFMT != unix.S_IFREG:
		return b, errLink(path)
	}
	return b, nil
}

// mayBe compares names, and reports whether the file of device n may be b. Find calls mayBe first,
// so Find rarely opens the device of another file.
//
// If inAnyFolder is true, mayBe compares the names without their folders. The reason is that the
// kernel loses the folder of a device's file when the container that attached the file ends. Files
// in different folders can have equal names. So Find sets inAnyFolder only if it also compares the
// inodes, or if a mount of device n is in nearPaths.
func (b backingFile) mayBe(n int, inAnyFolder bool) bool {
	name, err := BackingFile(n)
	return err == nil && (name == b.name || inAnyFolder && filepath.Base(name) == filepath.Base(b.name))
}

// BackingFile returns the kernel's path of a device's file. The path of a deleted
// file ends with " (deleted)". For a device without a file the error is
// fs.ErrNotExist.
func BackingFile(n int) (string, error) {
	raw, err := os.ReadFile("/sys/block/loop" + strconv.Itoa(n) + "/loop/backing_file")
	return strings.TrimSuffix(string(raw), "\n"), err
}

// deviceIfBacking returns device n if its file is b, the device is not fenced, and no other node
// owns the device. Otherwise it returns nil. If the file b no longer exists, deviceIfBacking cannot
// compare inodes, and assumes that b is the device's file. So the caller must first compare the
// names with mayBe.
func (b backingFile) deviceIfBacking(n int) (*Loop, error) {
	d, err := Open(n)
	if err != nil || d == nil {
		return nil, err
	}
	info, err := unix.IoctlLoopGetStatus64(int(d.dev.Fd()))
	if err != nil || !b.gone && (info.Inode != b.file.Ino || info.Device != b.file.Dev) || b.isOthers(info) || isFenced(info) {
		_ = d.Close()   // another process removed the device in the meantime, or the device has another file, has another node or is fenced
		return nil, nil //nolint:nilerr // such a device does not belong to this file
	}
	return d, nil
}

func isFenced(info *unix.LoopInfo64) bool { return info.Offset == fencedOffset }

// isOthers reports whether a device belongs to another node.
func (b backingFile) isOthers(info *unix.LoopInfo64) bool {
	owner := ownerOf(info.File_name)
	return b.node != "" && owner != "" && owner != ownerOf(label("", b.node)) // label truncates both node names to the same length
}

// At returns the number of the loop device at path. The path is either a mount of
// the device's filesystem or the device file itself.
func At(path string) (n int, ok bool) {
	var s unix.Statx_t
	// These flags prevent automounts and calls to a file server.
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &s)
	switch {
	case err != nil:
		return 0, false
	case s.Dev_major == Major:
		return int(s.Dev_minor), true
	case s.Rdev_major == Major && s.Mode&unix.S_IFMT == unix.S_IFBLK:
		return int(s.Rdev_minor), true
	}
	return 0, false
}

// listNumbers returns the numbers of all loop devices, in use or not.
func listNumbers() (numbers []int, err error) {
	dir, err := os.Open("/sys/block")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "loop"); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	return numbers, err
}
