package machine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
	"github.com/cloudsim-dev/allinone/internal/flock"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// mkfsAttribute is the extended attribute that marks a file while mkfs writes to the file. A marked
// file contains no user data, so EnsureFilesystem may run mkfs on it again. The value of the
// attribute is the name of the marked file. So a copy of this file does not count as marked,
// because the copy has another name.
const mkfsAttribute = "trusted.cloudsim.mkfs"

// EnsureFilesystem makes a filesystem of the type wantType on the disk of the
// loop device l, unless the disk already has a filesystem of this type.
// EnsureFilesystem runs mkfs only on a disk without any data (see neverWritten),
// or after an mkfs that did not finish. It grows an existing unmounted ext4
// filesystem to the size of the disk. It returns the size of the filesystem in
// bytes. It returns ErrForeign if the disk has a filesystem of another type. It
// returns ErrHasData if the disk has data and no known filesystem. It returns
// fs.ErrPermission if it must run mkfs, but the device is read-only.
//
// EnsureFilesystem holds a lock on the file at path, and mkfs inherits the
// lock. If the driver dies during mkfs, the next call therefore waits until
// mkfs has ended.
func EnsureFilesystem(ctx context.Context, l *Loop, path, wantType string) (bytes int64, err error) {
	f, err := loop.OpenFile(l.contentPath(path), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := lock(ctx, f); err != nil {
		return 0, err
	}
	fsType, bytes, err := probe(f)
	if err != nil {
		return 0, err
	}
	broken, err := l.isMarked(f)
	if err != nil {
		return 0, err
	}
	if fsType != "" && !broken {
		if fsType != wantType {
			return 0, fmt.Errorf("%w: %s, not %s", ErrForeign, fsType, wantType)
		}
		return growUnmounted(ctx, f, l, fsType, bytes)
	}
	if !broken {
		if err := l.neverWritten(f); err != nil {
			return 0, err
		}
	}
	switch readOnly, err := l.IsReadOnly(); {
	case err != nil:
		return 0, err
	case readOnly:
		return 0, fmt.Errorf("the disk has no complete filesystem, and the driver cannot format the disk, because it is attached read-only (%w): attach the disk once for writing", fs.ErrPermission)
	}
	if err := format(ctx, f, l, wantType); err != nil {
		return 0, err
	}
	_, bytes, err = probe(f)
	return bytes, err
}

// lock takes the exclusive lock of f. It waits for the lock until ctx ends.
func lock(ctx context.Context, f *os.File) error {
	for {
		if locked, err := flock.Try(f); locked || err != nil {
			return err
		}
		backoff.Sleep(ctx, tick)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// neverWritten returns nil if the disk f contains no data. Otherwise it returns
// ErrHasData. A file contains no data if the whole file is a hole. In a device,
// neverWritten cannot find holes. It therefore checks that the first 4 MiB and
// the last MiB of the device contain only zeros. These parts contain the
// signatures of all known filesystems, partition tables and volume managers.
func (l *Loop) neverWritten(f *os.File) error {
	if l.managed {
		return zeroAtEnds(f)
	}
	_, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return nil
	case err != nil:
		return fmt.Errorf("checking whether the disk is empty: %w", err)
	}
	return ErrHasData
}

func zeroAtEnds(f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for _, at := range []struct{ from, to int64 }{{0, min(4<<20, size)}, {max(0, size-1<<20), size}} {
		b := make([]byte, at.to-at.from)
		if _, err := f.ReadAt(b, at.from); err != nil {
			return fmt.Errorf("checking whether the disk is empty: %w", err)
		}
		if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			return ErrHasData
		}
	}
	return nil
}

// mkfsSector marks a device while mkfs writes to the device. This mark is in
// the first sector of the device, which ext4 does not use. mkfs.ext4 erases the
// first sector, unless the magic number of a BSD disk label is at byte 64
// (function zap_sector of e2fsprogs). The mark therefore contains this number.
// For XFS, mkfs replaces the mark by the superblock. From then on, a field of
// the superblock shows whether mkfs has finished. If the disk is a file, the
// package uses mkfsAttribute instead of mkfsSector.
var mkfsSector = fmt.Sprintf("%-64sWEV\x82", "cloudsim: mkfs has not finished")

// isMarked reports whether an earlier mkfs did not finish. It returns an error
// if it cannot read the mark.
func (l *Loop) isMarked(f *os.File) (bool, error) {
	mark := make([]byte, 256)
	if !l.managed {
		n, err := unix.Fgetxattr(int(f.Fd()), mkfsAttribute, mark)
		switch {
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP): // format ignores ENOTSUP too
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read the mkfs mark of the disk: %w", err)
		}
		return string(mark[:n]) == filepath.Base(f.Name()), nil
	}
	if _, err := f.ReadAt(mark, 0); err != nil {
		return false, err
	}
	const inProgress = 126 // sb_inprogress of struct xfs_dsb
	return string(mark[:len(mkfsSector)]) == mkfsSector || string(mark[:4]) == "XFSB" && mark[inProgress] != 0, nil
}

// setMark marks the disk as a disk with an unfinished mkfs. The caller calls
// setMark before mkfs runs, and removeMark after mkfs has succeeded.
func (l *Loop) setMark(f *os.File) error {
	if l.managed {
		return l.writeStart(mkfsSector)
	}
	return unix.Fsetxattr(int(f.Fd()), mkfsAttribute, []byte(filepath.Base(f.Name())), 0)
}

// removeMark removes the mark that setMark made. On a device with XFS,
// removeMark does nothing, because mkfs has replaced the mark by the superblock.
func (l *Loop) removeMark(f *os.File, fsType string) error {
	switch {
	case !l.managed:
		return unix.Fremovexattr(int(f.Fd()), mkfsAttribute)
	case fsType == XFS:
		return nil
	}
	return l.writeStart(strings.Repeat("\x00", len(mkfsSector)))
}

func (l *Loop) writeStart(s string) error {
	dev, err := os.OpenFile(l.Device(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = dev.WriteString(s)
	return errors.Join(err, dev.Sync(), dev.Close())
}

// probe reads the type and the size of the filesystem in f from its superblock.
// The type is "" if f has no known filesystem.
func probe(f *os.File) (fsType string, bytes int64, err error) {
	b := make([]byte, 4096)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", 0, fmt.Errorf("read the superblock of the disk: %w", err) // an unreadable disk does not count as empty
	}
	if string(b[:4]) == "XFSB" {
		return XFS, int64(binary.BigEndian.Uint32(b[4:])) * int64(binary.BigEndian.Uint64(b[8:])), nil
	}
	super := b[1024:] // struct ext4_super_block
	if binary.LittleEndian.Uint16(super[0x38:]) != 0xEF53 {
		return "", 0, nil
	}
	blocks := uint64(binary.LittleEndian.Uint32(super[4:]))
	if const64 := uint32(0x80); binary.LittleEndian.Uint32(super[0x60:])&const64 != 0 {
		blocks |= uint64(binary.LittleEndian.Uint32(super[0x150:])) << 32
	}
	return Ext4, int64(blocks << (10 + binary.LittleEndian.Uint32(super[0x18:]))), nil
}

// mkfsCommands maps each filesystem to the command that makes it. The commands
// do not discard blocks, because the file of a new disk is sparse and has no
// blocks to discard.
var mkfsCommands = map[string][]string{
	Ext4: {"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"},
	XFS:  {"mkfs.xfs", "-q", "-f", "-K"},
}

// format runs mkfs on the device of l. It marks the disk before mkfs runs, and removes the mark
// after mkfs has succeeded (see setMark).
func format(ctx context.Context, f *os.File, l *Loop, fsType string) error {
	how, ok := mkfsCommands[fsType]
	if !ok {
		return fmt.Errorf("unknown filesystem %q: the supported filesystems are %s", fsType, strings.Join(Filesystems(), " and "))
	}
	marked := l.setMark(f)
	if marked != nil && !errors.Is(marked, unix.ENOTSUP) {
		return marked
	}
	if err := tool(ctx, f, append(slices.Clone(how), l.Device())...); err != nil {
		return err
	}
	if marked != nil {
		return nil //nolint:nilerr // the file system of f does not support the mark, which is needed only after a crash during mkfs
	}
	return l.removeMark(f, fsType)
}

// tool runs a program. If lockFile is not nil, the program inherits this open
// file, and therefore also holds the lock of the file.
func tool(ctx context.Context, lockFile *os.File, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// The program gets its own process group, so that a signal to the driver's
	// process group does not reach the program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if lockFile != nil {
		cmd.ExtraFiles = []*os.File{lockFile}
	}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// slack is a number of bytes. If a device is larger than its filesystem by less than slack, the
// package does not grow the filesystem. In this case the disk has not grown, because a disk grows
// by whole GiB.
const slack = 256 << 20

// Grow enlarges a filesystem to the size of its device. The filesystem is
// mounted at path, and currentSize is its size in bytes. Grow does nothing if
// the filesystem already fills the device. For ext4, Grow returns
// fs.ErrPermission if CanGrowMounted returns false.
func Grow(ctx context.Context, l *Loop, path, fsType string, currentSize int64) error {
	size, err := l.Size()
	if err != nil || currentSize+slack > size {
		return err
	}
	if fsType == XFS {
		return tool(ctx, nil, "xfs_growfs", path)
	}
	if !CanGrowMounted() {
		return fmt.Errorf("to grow a mounted ext4 filesystem, this process needs CAP_SYS_RESOURCE; without it, the driver grows the filesystem at the next staging: %w", fs.ErrPermission)
	}
	return tool(ctx, nil, "resize2fs", l.Device())
}

// growUnmounted grows an unmounted ext4 filesystem to the size of its device.
// Unlike Grow, it needs no Linux capability. It ignores XFS, because XFS can
// grow only while it is mounted.
func growUnmounted(ctx context.Context, f *os.File, l *Loop, fsType string, bytes int64) (int64, error) {
	size, err := l.Size()
	if err != nil || fsType != Ext4 || bytes+slack > size {
		return bytes, err
	}
	readOnly, err := l.IsReadOnly()
	if err != nil || readOnly {
		return bytes, err
	}
	if found, err := l.Of(); err != nil || len(found) > 0 {
		return bytes, err
	}
	if err := runToTheEnd(ctx, f, l, func(ctx context.Context, f *os.File) error {
		err := tool(ctx, f, "e2fsck", "-f", "-p", l.Device())
		if e, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || e.ExitCode() != 1) { // with exit code 1, e2fsck has corrected errors
			return err
		}
		return tool(ctx, f, "resize2fs", l.Device())
	}); err != nil {
		return bytes, err
	}
	_, bytes, err = probe(f)
	return bytes, err
}

// runToTheEnd starts workFn, which checks or resizes a filesystem. It waits for the result of
// workFn until ctx ends. If ctx ends first, workFn continues. If runToTheEnd stopped a check, the
// next call would begin the check again. If it stopped a resize, it would damage the filesystem.
// Until workFn returns, f stays locked and the device stays open, even after runToTheEnd has
// returned. So the next call waits.
func runToTheEnd(ctx context.Context, f *os.File, l *Loop, workFn func(context.Context, *os.File) error) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	held := os.NewFile(uintptr(fd), f.Name())
	dev, err := os.Open(l.Device())
	if err != nil {
		return errors.Join(err, held.Close())
	}
	done := make(chan error, 1)
	go func() {
		err := workFn(context.WithoutCancel(ctx), held)
		done <- errors.Join(err, dev.Close(), held.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ReplayUnfinished calls Replay if the filesystem in the file at path can have an
// unfinished journal. It does nothing if the file has no known filesystem.
func ReplayUnfinished(ctx context.Context, path string) error {
	f, err := loop.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	fsType, _, err := probe(f)
	if err != nil || fsType == "" {
		return err
	}
	if fsType == Ext4 {
		flags := make([]byte, 4)
		if _, err := f.ReadAt(flags, 1024+0x60); err != nil { // s_feature_incompat of struct ext4_super_block
			return err
		}
		const needsRecovery = 0x4
		if binary.LittleEndian.Uint32(flags)&needsRecovery == 0 {
			return nil
		}
	}
	return Replay(ctx, "", path, fsType)
}

// Replay applies the journal of the filesystem in the file at path. The driver calls Replay on a
// node that attaches the disk read-only. If another node has attached the disk for writing, Replay
// can damage the filesystem. The caller must exclude this case. Replay mounts the filesystem, and
// the kernel then replays the journal. The mount has no path, and the kernel removes the mount if
// this process dies. See AttachFor for the argument node.
func Replay(ctx context.Context, node, path, fsType string) error {
	f, err := loop.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(ctx, f); err != nil {
		return err
	}
	l, err := AttachFor(ctx, node, path, false, true)
	if err != nil {
		return err
	}
	if err := errors.Join(mountUnseen(l.Device(), fsType), l.Close()); err != nil {
		return fmt.Errorf("replay of the %s journal failed: %w", fsType, err)
	}
	for { // wait until the kernel has detached the device, see loop.Attach
		l, err := FindFor(node, path)
		if err != nil || l == nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
		backoff.Sleep(ctx, tick)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// mountUnseen mounts the filesystem of a device and then unmounts it. The mount
// does not appear at any path.
func mountUnseen(device, fsType string) error {
	config, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	err = unix.FsconfigSetString(config, "source", device)
	if err == nil && fsType == XFS {
		err = unix.FsconfigSetFlag(config, "nouuid") // the disk can be a copy, and its original can be mounted with the same UUID
	}
	if err == nil {
		err = unix.FsconfigCreate(config)
	}
	var seen int
	if err == nil {
		if seen, err = unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0); err == nil {
			err = unix.Close(seen)
		}
	}
	return errors.Join(err, unix.Close(config))
}

// CanGrowMounted reports whether the kernel lets this process grow a mounted
// ext4 filesystem.
func CanGrowMounted() bool {
	var have [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0])
	return err == nil && have[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// FilesystemSize reads the superblock of the filesystem on the loop device l, and returns the size
// of this filesystem in bytes. It returns 0 if the device has no known filesystem. The argument
// path is the path of the disk's file. If the hypervisor manages the device, FilesystemSize ignores
// path.
func FilesystemSize(l *Loop, path string) (int64, error) {
	f, err := loop.OpenFile(l.contentPath(path), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, bytes, err := probe(f)
	return bytes, err
}
