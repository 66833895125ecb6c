package disks

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow makes open(2) fail if the path is a symbolic link.
const noFollow = unix.O_NOFOLLOW

// clone makes to share the blocks of from (FICLONE), which the file system must support. The
// clone shows one instant, and takes no space until one of the two files is written to.
func clone(to, from *os.File) error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) }

// nextData returns the next part of f that holds data, from offset at on and before size. If
// there is none, begin equals end. A file system without support for holes reports the whole
// file as data.
func nextData(f *os.File, at, size int64) (begin, end int64, err error) {
	if begin, err = f.Seek(at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) || begin >= size {
		return size, size, nil
	} else if err != nil {
		return 0, 0, err
	}
	end, err = f.Seek(begin, unix.SEEK_HOLE)
	return begin, min(end, size), err
}
