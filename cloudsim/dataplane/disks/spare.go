package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// maxSpares is how many files wait to be disks again, and how many to be emptied.
const maxSpares = 64

// spares are files of disks that are gone, emptied, to be the next disks. On
// ext4 without a journal each new file looks past every inode that was freed in
// the last minute (recently_deleted), which took a fifth of the time of a cloud
// whose disks come and go.
//
// A file becomes a spare only if its name and this program are all that holds
// it: a device of a dead machine that still writes to it writes to no other disk.
type spares struct {
	log     *slog.Logger
	dir     string
	retired chan *os.File // to become spares, or nothing
	running sync.WaitGroup

	mu    sync.Mutex
	ready []string
	named uint64
}

func newSpares(log *slog.Logger, dir string) *spares {
	s := &spares{log: log, dir: dir, retired: make(chan *os.File, maxSpares)}
	s.running.Go(func() {
		for f := range s.retired {
			if err := s.empty(f); err != nil {
				s.remove(f.Name())
			}
		}
	})
	return s
}

// retire takes the file at path away, for good. The name is free when it
// returns; the data goes meanwhile. What somebody has is deleted under its own
// name, by which a device of it is found.
func (s *spares) retire(path string) error {
	f, err := openAlone(path)
	if err != nil {
		return os.Remove(path)
	}
	s.named++
	spare := filepath.Join(s.dir, fmt.Sprintf("spare-%06x%s", s.named, suffix))
	if err := errors.Join(f.Close(), os.Rename(path, spare)); err != nil {
		return os.Remove(path) // which a full disk does not refuse
	}
	if f, err = openAlone(spare); err != nil { // for good: nobody knows this name
		s.remove(spare)
		return nil //nolint:nilerr // it is deleted
	}
	select {
	case s.retired <- f:
		return nil
	default:
		return errors.Join(f.Close(), os.Remove(spare))
	}
}

// openAlone opens a file that nothing else has. What is no file itself, but a
// link to one, is somebody's.
func openAlone(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	if err := alone(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

var (
	errNotAlone = errors.New("something else has it")
	errEnough   = errors.New("there are enough")
)

// empty makes a spare of a file, unless there are enough. If it held data, it is
// on the disk that it is empty before it is another's: a power cut brings none
// back. That costs as much as a commit of the cloud, and delays those.
func (s *spares) empty(f *os.File) error {
	held := holdsData(f)
	err := f.Truncate(0)
	if err == nil && held {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == maxSpares {
		return errEnough
	}
	s.ready = append(s.ready, f.Name())
	return nil
}

// make makes of a spare the file at path, of so many bytes; false if there is
// none that can be. The file is whole when it has the name.
func (s *spares) make(path string, bytes int64) bool {
	s.mu.Lock()
	var spare string
	if n := len(s.ready); n > 0 {
		spare, s.ready = s.ready[n-1], s.ready[:n-1]
	}
	s.mu.Unlock()
	if spare == "" {
		return false
	}
	if err := os.Truncate(spare, bytes); err == nil && os.Rename(spare, path) == nil {
		return true
	}
	s.remove(spare)
	return false
}

func (s *spares) remove(spare string) {
	if err := os.Remove(spare); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("the data of what is gone stays until the next start", "of", filepath.Base(spare), "error", reason(err))
	}
}

// close ends the work, and leaves no spare.
func (s *spares) close() {
	close(s.retired)
	s.running.Wait()
	for _, spare := range s.ready {
		s.remove(spare)
	}
}
