package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/durable"
)

// bootID is another one each time that the machine comes up; "" if it cannot be
// told, and then there is no redo log.
var bootID = sync.OnceValue(func() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(raw)); err == nil && len(id) == 36 {
		return id
	}
	return ""
})

// fileID is what a file keeps when it is written to or renamed, and when the
// machine comes up again, as the number of a device need not. The number of a file
// that is gone is soon another's; when a file was made tells the two apart, where
// the filesystem knows.
type fileID struct {
	Inode, Second uint64
	Nanosecond    uint32
}

func idOf(f *os.File) (fileID, error) {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	return fileID{Inode: st.Ino, Second: uint64(st.Btime.Sec), Nanosecond: st.Btime.Nsec}, err
}

// lock locks f as bbolt then does again, and waits as long.
func lock(f *os.File, patience time.Duration) error {
	for end := time.Now().Add(patience); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(end) {
			return berrors.ErrTimeout
		}
		<-time.After(patience / 10) // flock tells nobody
	}
}

// fdatasync goes on after a signal, which has lost nothing.
func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// syncNew syncs a file that is new, and its name.
func syncNew(f *os.File) error {
	return errors.Join(f.Sync(), durable.Names(filepath.Dir(f.Name())))
}
