package disks

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow makes open(2) fail if the path is a symbolic link. If the path is a FIFO, open(2) does
// not wait for another process. The caller must check the type of the opened file.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// clone turns dst into a copy of src (FICLONE). It fails if the file system cannot clone files. The
// copy contains the data of src at one instant. The two files share their blocks, so the copy takes
// no space until a program writes to dst or src.
func clone(dst, src *os.File) error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) }

// nextData searches the bytes of f from start up to the end of the file, which has the given size.
// It returns the begin and the end of the first part with data. If there is no data in this range,
// begin and end are equal. A file system without support for holes reports the whole file as data.
func nextData(f *os.File, start, size int64) (begin, end int64, err error) {
	if begin, err = f.Seek(start, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) || begin >= size {
		return size, size, nil
	} else if err != nil {
		return 0, 0, err
	}
	end, err = f.Seek(begin, unix.SEEK_HOLE)
	return begin, min(end, size), err
}
