package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/pause"
)

// Loop is a loop device, held open: as long as it is, the kernel gives its
// number to no other file.
type Loop struct {
	dev    *os.File
	Number int
}

// Device is the path of the device.
func (l *Loop) Device() string { return l.dev.Name() }

// Close lets go of the device; it stays what it is.
func (l *Loop) Close() error { return l.dev.Close() }

// Attach returns the loop device of a file, which it makes if there is none. One
// that is there lapses or not as it did, see Lapse and Stay.
//
// One that lapses is taken away by the kernel when nothing has it open and
// nothing of it is mounted: also when the process is killed that made it, or
// the machine whose mounts they were. A device that is shown as a file must
// not lapse, as between two who open it nobody has it open.
func Attach(ctx context.Context, path string, readOnly, lapses bool) (*Loop, error) {
	return AttachFor(ctx, "", path, readOnly, lapses)
}

// AttachFor is Attach for a node that is to have a device of its own, as a disk
// has on each machine that shares it: what this one refuses, or that it goes, is
// nothing to other nodes of the same host.
func AttachFor(ctx context.Context, node, path string, readOnly, lapses bool) (*Loop, error) {
	l, err := FindFor(node, path)
	if err != nil {
		return nil, err
	}
	if l != nil {
		if err := l.Refresh(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	}
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	file, err := openDisk(path, mode)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("no loop devices on this machine: %w", err)
	}
	defer control.Close()
	for {
		l, err := configure(control, file, node, mode, lapses)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENXIO) {
			return l, err
		}
		pause.For(ctx, tick) // another was faster, and may be taking it away again already
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// openDisk opens the file of a disk. Another process may write to the folder of the
// disks, and a link there must not make the driver open a file of the node.
func openDisk(path string, mode int) (*os.File, error) {
	f, err := os.OpenFile(path, mode|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errLink(path)
	}
	return f, err
}

func errLink(path string) error {
	return fmt.Errorf("%s is not a regular file: the driver follows no link to the data of a disk; move the file back", filepath.Base(path))
}

// tick is how long to wait between two looks at what has no event.
const tick = 5 * time.Millisecond

// configure puts file behind the first free device. EBUSY says that the device
// was free a moment ago, and ENXIO that it will be in a moment.
func configure(control, file *os.File, node string, mode int, lapses bool) (*Loop, error) {
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("a free loop device: %w", err)
	}
	name := "/dev/loop" + strconv.Itoa(n)
	dev, err := os.OpenFile(name, mode, 0)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	c := unix.LoopConfig{Fd: uint32(file.Fd())}
	c.Info.File_name = called(file.Name(), node)
	if mode == os.O_RDONLY {
		c.Info.Flags = unix.LO_FLAGS_READ_ONLY
	}
	if lapses {
		c.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), &c); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// What is kept open may not write: mounting a device that another may
	// write to is what kernels can be told to refuse.
	keep, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	l := &Loop{dev: keep, Number: n}
	if mode == os.O_RDWR {
		// That a device refuses writes is its number's, and outlives the file (Linux 5.12).
		if err := l.refuseWrites(false); err != nil {
			return nil, errors.Join(err, l.Detach())
		}
	}
	return l, nil
}

// Find returns the loop device of a file, nil if there is none: of the file
// that has this name now, by its inode, because machines on one host may call
// theirs the same, and the kernel gives the number of a device to the next file
// at once. Of a file that is gone it is the device of one that had the name.
//
// Its price is a read for each loop device that is in use, unless the one that
// it looks for is mounted at near: that is looked at first.
func Find(path string, near ...string) (*Loop, error) { return FindFor("", path, near...) }

// FindFor is Find for a node, which passes over what other nodes have for their
// own.
func FindFor(node, path string, near ...string) (*Loop, error) {
	b, err := backingOf(path)
	if err != nil {
		return nil, err
	}
	b.node = node
	for _, at := range near {
		if n, ok := loopAt(at); ok && (!b.gone || b.maybe(n, true)) { // opened to be looked at, it stays: it is mounted
			if l, err := b.behind(n); err == nil && l != nil {
				return l, nil
			}
		}
	}
	numbers, err := loopNumbers()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if !b.maybe(n, !b.gone) {
			continue
		}
		if l, err := b.behind(n); err != nil || l != nil {
			return l, err
		}
	}
	return nil, nil
}

// backing is a file that a loop device may have.
type backing struct {
	name string // as the kernel calls it
	gone bool
	file unix.Stat_t // unless it is gone
	node string      // that looks for a device of it
}

// called is what a device is called: as its file, also when our mounts are gone,
// and, where nobody but us reads on, whose own it is. The kernel has room for 63
// bytes, of which a long path loses some.
func called(path, node string) (name [unix.LO_NAME_SIZE]byte) {
	if node == "" {
		copy(name[:len(name)-1], path)
		return name
	}
	n := copy(name[:max(len(name)-2-len(node), 0)], path)
	copy(name[n+1:len(name)-1], node)
	return name
}

// ownerOf is whose own a device of that name is, "" if nobody's.
func ownerOf(name [unix.LO_NAME_SIZE]byte) string {
	_, rest, _ := bytes.Cut(name[:], []byte{0})
	return unix.ByteSliceToString(rest)
}

// backingOf returns the file at path, or the name that a deleted file had. It returns
// an error if path is a link, see openDisk.
func backingOf(path string) (b backing, err error) {
	if b.name, err = realpath(path); err != nil {
		return b, err
	}
	switch err := unix.Lstat(b.name, &b.file); {
	case errors.Is(err, unix.ENOENT):
		return backing{name: b.name + " (deleted)", gone: true}, nil
	case err != nil:
		return b, &fs.PathError{Op: "lstat", Path: b.name, Err: err}
	case b.file.Mode&unix.S_IFMT != unix.S_IFREG:
		return b, errLink(path)
	}
	return b, nil
}

// maybe reports whether the file behind a loop device may be this one by its
// name, so that few devices are opened that are another's. Of the folder the
// kernel shows what it can, which is nothing when it was seen in a container that
// is gone; so where there is other evidence, it is left out.
func (b backing) maybe(n string, inAnyFolder bool) bool {
	name, err := backingFile(n)
	return err == nil && (name == b.name || inAnyFolder && filepath.Base(name) == filepath.Base(b.name))
}

// backingFile is what the kernel calls the file behind a loop device.
func backingFile(n string) (string, error) {
	raw, err := os.ReadFile("/sys/block/loop" + n + "/loop/backing_file")
	return strings.TrimSuffix(string(raw), "\n"), err
}

// behind returns a loop device if it has the file, and else nil. Of a file that
// is gone only its name is known, see maybe.
func (b backing) behind(n string) (*Loop, error) {
	dev, err := os.Open("/dev/loop" + n)
	if errors.Is(err, unix.ENXIO) {
		return nil, nil // it is being taken away
	}
	if err != nil {
		return nil, err
	}
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil || !b.gone && (info.Inode != b.file.Ino || info.Device != b.file.Dev) || b.others(info) {
		_ = dev.Close() // it went between the two looks, or is of another file, or node
		return nil, nil //nolint:nilerr // it is not this file's
	}
	return &Loop{dev: dev, Number: int(info.Number)}, nil
}

// others reports whether a device is another node's own.
func (b backing) others(info *unix.LoopInfo64) bool {
	owner := ownerOf(info.File_name)
	return b.node != "" && owner != "" && owner != ownerOf(called("", b.node)) // as much of it as there is room for
}

// loopAt is the loop device whose filesystem, or whose file, is seen at path.
func loopAt(path string) (n string, ok bool) {
	s, err := statx(path)
	switch {
	case err != nil:
		return "", false
	case s.Dev_major == unixLoopMajor:
		return strconv.Itoa(int(s.Dev_minor)), true
	case s.Rdev_major == unixLoopMajor && s.Mode&unix.S_IFMT == unix.S_IFBLK:
		return strconv.Itoa(int(s.Rdev_minor)), true
	}
	return "", false
}

// loopNumbers are those of all loop devices, in use or not.
func loopNumbers() (numbers []string, err error) {
	dir, err := os.Open("/sys/block")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if n, ok := strings.CutPrefix(name, "loop"); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers, err
}

// realpath is path without symbolic links in its folder, nor a slash at its end:
// as the kernel's table of mounts has it. The file itself may be a link, or
// missing.
func realpath(path string) (string, error) {
	path = filepath.Clean(path)
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// Refresh tells the device that its file may have grown.
func (l *Loop) Refresh() error {
	if err := unix.IoctlSetInt(int(l.dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("%s: to see its new size: %w", l.Device(), err)
	}
	return nil
}

// Lapse says of a device that it lapses.
func (l *Loop) Lapse() error { return l.setLapse(true) }

// Stay says of a device that it does not lapse.
func (l *Loop) Stay() error { return l.setLapse(false) }

// Lapses reports whether the kernel takes the device away when nothing has it
// open and nothing of it is mounted.
func (l *Loop) Lapses() (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(l.dev.Fd()))
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.Device(), err)
	}
	return info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0, nil
}

// setLapse makes a device that is there already lapse, or not.
func (l *Loop) setLapse(lapses bool) error {
	info, err := unix.IoctlLoopGetStatus64(int(l.dev.Fd()))
	if err != nil || (info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0) == lapses {
		return err
	}
	info.Flags ^= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(int(l.dev.Fd()), info); err != nil {
		return fmt.Errorf("%s: whether it lapses: %w", l.Device(), err)
	}
	return nil
}

// Size is how large the device is.
func (l *Loop) Size() (int64, error) { return l.dev.Seek(0, 2) }

// IsReadOnly reports whether the device refuses writes.
func (l *Loop) IsReadOnly() (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(l.dev.Fd()))
	if err != nil {
		return false, err
	}
	return info.Flags&unix.LO_FLAGS_READ_ONLY != 0, nil
}

// Guard makes the device refuse writes, or take them, if its file may be written
// to at all: a mount that is read-only does not guard a device that it shows.
func (l *Loop) Guard(readOnly bool) error {
	fixed, err := l.IsReadOnly()
	if err != nil || fixed {
		return err
	}
	return l.refuseWrites(readOnly)
}

func (l *Loop) refuseWrites(yes bool) error {
	flag := 0
	if yes {
		flag = 1
	}
	if err := unix.IoctlSetPointerInt(int(l.dev.Fd()), unix.BLKROSET, flag); err != nil {
		return fmt.Errorf("%s: whether it takes writes: %w", l.Device(), err)
	}
	return nil
}

// Detach takes the file from behind the device and closes it. The kernel does
// so when the last who has it open lets go. What the device refused, its number
// does not refuse to the next file, which may be another program's.
func (l *Loop) Detach() error {
	err := l.Guard(false)
	if err == nil {
		err = unix.IoctlSetInt(int(l.dev.Fd()), unix.LOOP_CLR_FD, 0)
	}
	if errors.Is(err, unix.ENXIO) {
		err = nil // it had none any more
	}
	return errors.Join(err, l.dev.Close())
}

// FileAt is the name of the file behind the loop device whose filesystem, or whose
// own file, is mounted at path; "" if no such thing is. Of a file that is gone it
// is the name that it had.
func FileAt(path string) (string, error) {
	at, err := mountPoint(path)
	if err != nil || at == "" {
		return "", err
	}
	n, ok := loopAt(at)
	if !ok {
		return "", nil
	}
	name, err := backingFile(n)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it was taken away
	}
	return strings.TrimSuffix(name, " (deleted)"), err
}
