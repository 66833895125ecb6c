package disks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
)

// A saved state contains one bucket for each file of a disk or snapshot. The bucket's name is the
// id of the disk or snapshot. bbolt stores a sequence number for each bucket, and here this number
// is the size of the file. The bucket's keys are the offsets of those parts of the file that
// contain data. The bucket has no entries for holes and for parts that contain only zeros.
const (
	maxPart  = 64 << 10
	maxFiles = 1 << 16
)

var (
	zeros     [maxPart]byte
	fileID    = regexp.MustCompile(`^(disk|snap)-[0-9a-f]{6,16}$`)
	errTooBig = cloudsim.Errorf(cloudsim.Conflict, "the disks and snapshots hold more than %d GiB of data, the limit of a state: set recordsOnly to save the state without this data", cloudsim.MaxStateData>>30)
)

// pack writes the data of a file to w, up to the offset size. It returns the number of bytes
// written.
func pack(ctx context.Context, w *statefile.Writer, id, path string, size int64) (n int64, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := w.Bucket([]byte(id), uint64(size)); err != nil {
		return 0, err
	}
	part := make([]byte, maxPart)
	for e, err := range listExtents(file) {
		if err != nil {
			return n, err
		}
		for e.end = min(e.end, size); e.begin < e.end; e.begin += maxPart {
			data := part[:min(maxPart, e.end-e.begin)]
			if _, err := file.ReadAt(data, e.begin); err != nil {
				return n, err
			}
			if bytes.Equal(data, zeros[:len(data)]) {
				continue
			}
			if err := errors.Join(ctx.Err(), w.Put(binary.BigEndian.AppendUint64(nil, uint64(e.begin)), data)); err != nil {
				return n, err
			}
			n += int64(len(data))
		}
	}
	return n, nil
}

// unpack reads the last section of a saved state, which contains the data of disks and snapshots.
// It writes this data to files in dir, with the file modes of disks and snapshots. It returns the
// ids of the disks and snapshots. It returns an error if the section is damaged.
func unpack(ctx context.Context, r *statefile.Reader, dir string) (ids []string, err error) {
	var file *os.File
	var size, at uint64 // size of the present file; end of its last part
	var total uint64
	closeFile := func() (err error) {
		if file != nil {
			err = errors.Join(file.Sync(), file.Close())
		}
		file = nil
		return err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	for ctx.Err() == nil {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return ids, r.EndSection(false)
		case err != nil:
			return nil, err
		case rec.Key == nil:
			id := string(rec.Bucket)
			if size, at = rec.Sequence, 0; !fileID.MatchString(id) || size > cloudsim.MaxDiskGiB<<30 || len(ids) == maxFiles {
				return nil, statefile.Damaged("%.40q with %d bytes is not a valid disk or snapshot, or the state has more than %d disks and snapshots", id, size, maxFiles)
			}
			if err := closeFile(); err != nil {
				return nil, err
			}
			if file, err = create(dir, id, int64(size)); err != nil {
				return nil, err
			}
			ids = append(ids, id)
			continue
		}
		n, offset := uint64(len(rec.Value)), size
		if len(rec.Key) == 8 {
			offset = binary.BigEndian.Uint64(rec.Key)
		}
		if total += n; offset < at || offset > size || n > size-offset || total > cloudsim.MaxStateData {
			return nil, statefile.Damaged("%s has %d bytes at offset %d: the bytes overlap other data, exceed the size of the disk, or exceed the limit of %d GiB in total", rec.Bucket, n, offset, cloudsim.MaxStateData>>30)
		}
		if _, err := file.WriteAt(rec.Value, int64(offset)); err != nil {
			return nil, err
		}
		at = offset + n
	}
	return nil, ctx.Err()
}

func create(dir, id string, size int64) (*os.File, error) {
	mode := made
	if strings.HasPrefix(id, "snap-") {
		mode = snapshotMode
	}
	file, err := os.OpenFile(filepath.Join(dir, id+suffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	return file, file.Truncate(size)
}
