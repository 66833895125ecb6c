package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// maxSpares is how many files wait to be disks again.
const maxSpares = 64

// spares are files of disks that are gone, emptied, to be the next disks. An
// inode that was used a minute ago is the dearest thing that a disk costs: ext4
// looks past each of them at every file that it makes (recently_deleted), so
// that a cloud where disks come and go all day gets slower by half.
//
// A file becomes a spare only if its name and this program are all that holds
// it: a device of a dead machine that still writes to it writes to no other disk.
type spares struct {
	dir     string
	retired chan string // names of files that are to become spares, or nothing
	running sync.WaitGroup

	mu    sync.Mutex
	ready []string
	named uint64
}

func newSpares(dir string) *spares {
	s := &spares{dir: dir, retired: make(chan string, maxSpares)}
	s.running.Go(func() {
		for path := range s.retired {
			if err := s.empty(path); err != nil {
				_ = os.Remove(path) // what stays is swept at the next start
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
	if err := f.Close(); err != nil {
		return err
	}
	s.mu.Lock()
	s.named++
	spare := filepath.Join(s.dir, fmt.Sprintf("spare-%06x%s", s.named, suffix))
	s.mu.Unlock()
	if err := os.Rename(path, spare); err != nil {
		return err
	}
	select {
	case s.retired <- spare:
		return nil
	default:
		return os.Remove(spare)
	}
}

var errNotAlone = errors.New("something else has it")

// openAlone opens a file that nothing else has.
func openAlone(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := alone(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// empty makes a spare of a file, unless there are enough.
func (s *spares) empty(path string) (err error) {
	f, err := openAlone(path) // for good: nobody knows its name by now
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(0); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == maxSpares {
		return errors.New("there are enough")
	}
	s.ready = append(s.ready, path)
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
	_ = os.Remove(spare) // what stays is swept at the next start
	return false
}

// close ends the work, and leaves no spare.
func (s *spares) close() {
	close(s.retired)
	s.running.Wait()
	for _, path := range s.ready {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // the folder is not ours any more; the next start sweeps it
		}
	}
}
