package disks

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/internal/backoff"
	"github.com/cloudsim-dev/allinone/internal/fsync"
)

const (
	part  = ".part"  // suffix of an incomplete copy
	chunk = 16 << 20 // number of bytes that copyData copies between two checks of ctx
	// tick is a duration that is longer than the resolution of the kernel's file times. If the time
	// between two writes to a file is longer than tick, the second write changes the modification
	// time.
	tick = 20 * time.Millisecond
	// maxTries is the maximum number of tries of copyTogether. A further try is necessary if a
	// source has changed during the copy.
	maxTries = 5
	// quietTimeout is the maximum time for which each try waits for a pause in the writes to the
	// sources.
	quietTimeout = 2 * time.Second
)

var errBusy = errors.New("programs write to the disk all the time: a copy needs a pause in the writes, or, for a single disk, a file system that can clone files (XFS, Btrfs)")

type fileCopy struct {
	from, to string
	bytes    int64 // minimum size of the copy; the copy of a larger source has the size of the source
	mode     fs.FileMode
}

// copyTogether makes the given copies. They contain the data of all sources at the same instant,
// like disks after a power cut. Each copy gets its final name only when it is complete. If all
// copies exist, copyTogether does nothing. If only some copies exist, copyTogether makes all copies
// again.
//
// If the file system can clone files, a call with one copy never returns errBusy. In all other
// cases, copyTogether needs a pause in the writes to the sources. If a program writes to a source
// during a try, copyTogether tries again. After maxTries failed tries, it returns errBusy. It
// returns errLost if a source is missing, and errNotRegular if a source is not a regular file.
func copyTogether(ctx context.Context, copies []fileCopy) error {
	if complete(copies) {
		return nil
	}
	defer func() {
		for _, c := range copies {
			_ = os.Remove(c.to + part) // the copy already has its final name, or it is useless
		}
	}()
	for _, c := range copies {
		if err := os.Remove(c.to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for try := 1; ; try++ {
		steady, err := copyOnce(ctx, copies)
		if err != nil {
			return err
		}
		if steady {
			break
		}
		if try == maxTries {
			return errBusy
		}
	}
	for _, c := range copies {
		if err := os.Rename(c.to+part, c.to); err != nil {
			return err
		}
	}
	return fsync.Dir(filepath.Dir(copies[0].to))
}

func complete(copies []fileCopy) bool {
	for _, c := range copies {
		if _, err := os.Lstat(c.to); err != nil {
			return false
		}
	}
	return true
}

// copyOnce copies each source to a file with a temporary name. It returns true if the copies
// contain the data of all sources at the same instant.
func copyOnce(ctx context.Context, copies []fileCopy) (steady bool, err error) {
	before, err := awaitUnchanged(ctx, copies)
	if err != nil {
		return false, err
	}
	cloned := true
	for _, c := range copies {
		atOnce, err := c.copy(ctx)
		if err != nil {
			return false, err
		}
		cloned = cloned && atOnce
	}
	if cloned && len(copies) == 1 {
		return true, nil
	}
	for i, c := range copies {
		now, err := stat(c.from)
		if err != nil {
			return false, err
		}
		if now != before[i] {
			return false, nil
		}
	}
	return true, nil
}

// fileStamp is the modification time and the size of a file. If two calls of stat return different
// values, a program wrote to the file between these calls.
type fileStamp struct {
	at   time.Time
	size int64
}

func stat(path string) (fileStamp, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileStamp{}, errLost
	case err != nil:
		return fileStamp{}, err
	case !info.Mode().IsRegular():
		return fileStamp{}, errNotRegular
	}
	return fileStamp{info.ModTime(), info.Size()}, nil
}

// awaitUnchanged waits until no program has written to any of the sources for longer than the
// duration tick. It waits no longer than the duration quietTimeout. It returns the modification
// time and the size of each source.
func awaitUnchanged(ctx context.Context, copies []fileCopy) ([]fileStamp, error) {
	found := make([]fileStamp, len(copies))
	for end := time.Now().Add(quietTimeout); ; {
		var last time.Time
		for i, c := range copies {
			var err error
			if found[i], err = stat(c.from); err != nil {
				return nil, err
			}
			if found[i].at.After(last) {
				last = found[i].at
			}
		}
		now := time.Now()
		if ago := now.Sub(last); ago > tick || ago < -tick || now.After(end) { // ago < -tick: the clock was set back
			return found, nil
		}
		backoff.Sleep(ctx, tick)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// copy writes the data of the source to a file with a temporary name, and syncs this file. It
// returns true if the file is a clone. A clone contains the data of the source at one instant, even
// if a program writes to the source.
func (c fileCopy) copy(ctx context.Context) (atOnce bool, err error) {
	src, err := os.OpenFile(c.from, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, errLost
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := os.Remove(c.to + part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	dst, err := os.OpenFile(c.to+part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if atOnce = clone(dst, src) == nil; !atOnce {
		if err := copyData(ctx, dst, src); err != nil {
			return false, err
		}
	}
	info, err := dst.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() < c.bytes {
		if err := dst.Truncate(c.bytes); err != nil {
			return false, err
		}
	}
	return atOnce, errors.Join(dst.Chmod(c.mode), dst.Sync())
}

// copyData copies the data of src to dst. On Linux, the holes of src become holes of dst.
func copyData(ctx context.Context, dst, src *os.File) error {
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for e, err := range listExtents(src) {
		if err != nil {
			return err
		}
		for at := e.begin; at < e.end; at += chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, err1 := src.Seek(at, io.SeekStart)
			_, err2 := dst.Seek(at, io.SeekStart)
			_, err3 := io.CopyN(dst, src, min(chunk, e.end-at))
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
		}
	}
	return nil
}

// extent is a part of a file that contains data. The part consists of the bytes with the offsets o
// for which begin <= o < end.
type extent struct{ begin, end int64 }

// listExtents returns the parts of a file between its holes. A file system without support
// for holes reports the whole file as one part.
func listExtents(f *os.File) iter.Seq2[extent, error] {
	return func(yield func(extent, error) bool) {
		info, err := f.Stat()
		if err != nil {
			yield(extent{}, err)
			return
		}
		for at := int64(0); ; {
			begin, end, err := nextData(f, at, info.Size())
			if err == nil && begin >= end || !yield(extent{begin, end}, err) || err != nil {
				return
			}
			at = end
		}
	}
}
