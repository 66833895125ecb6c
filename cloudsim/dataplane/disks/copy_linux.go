package disks

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow makes open(2) fail if the path is a symbolic link.
const noFollow = unix.O_NOFOLLOW

// clone makes to share the blocks of from, where the file system can
// (FICLONE): at one instant, and at no cost until either is written to.
func clone(to, from *os.File) error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) }

// nextData is where f's next data is, from at on and before size; begin is not
// before end when there is none. A file system that knows no holes says that
// all of a file is data.
func nextData(f *os.File, at, size int64) (begin, end int64, err error) {
	if begin, err = f.Seek(at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) || begin >= size {
		return size, size, nil
	} else if err != nil {
		return 0, 0, err
	}
	end, err = f.Seek(begin, unix.SEEK_HOLE)
	return begin, min(end, size), err
}
