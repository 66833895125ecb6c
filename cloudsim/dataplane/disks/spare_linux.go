package disks

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// alone is nil if f, which is open for writing, is this package's alone: as it
// was made, under one name, and open nowhere else. The kernel says so by giving
// a lease for writing (fcntl(2), F_SETLEASE); file systems that have none, and
// those that other machines share, refuse.
func alone(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink != 1 || info.Mode() != made || int(st.Uid) != os.Geteuid() {
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
