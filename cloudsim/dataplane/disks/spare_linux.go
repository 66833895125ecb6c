package disks

import (
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW

// local are the file systems that no other machine has, so that the kernel
// knows of everybody who has a file open.
var local = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC}

// alone is nil if f, which is open for writing, is this package's alone: as it
// was made, under one name, and open nowhere else, which the kernel says by
// giving a lease for writing (fcntl(2), F_SETLEASE).
func alone(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink != 1 || info.Mode() != made || int(st.Uid) != os.Geteuid() {
		return errNotAlone
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil || !slices.Contains(local, int64(on.Type)) { //nolint:unconvert // it is 32 bits wide elsewhere
		return errNotAlone
	}
	if n, err := unix.Flistxattr(int(f.Fd()), nil); err != nil || n > 0 {
		return errNotAlone // somebody's marks, which the next disk must not have
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err
}

// holdsData is false of a file that is all a hole.
func holdsData(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Blocks != 0
}
