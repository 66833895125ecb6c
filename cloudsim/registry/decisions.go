package registry

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// decisionsFile is the audit trail's: a JSON document a line, and beside it the
// one before with the ending ".1".
const decisionsFile = "decisions.jsonl"

// maxDecisionsFile is when a new one is begun: of some ten thousand decisions.
const maxDecisionsFile = 4 << 20

// decisions keeps the audit trail. A line is with the operating system before
// its decision is answered, and so outlives the cloud, however that ends; it is
// not waited for until a disk has it, which would cost each pull as much.
type decisions struct {
	path string
	mu   sync.Mutex
	file *os.File
	size int64
}

// keepDecisions gives the engine what was decided before, and keeps what it
// decides from now on.
func keepDecisions(dir string, e *engine.Engine) (*decisions, error) {
	d := &decisions{path: filepath.Join(dir, decisionsFile)}
	if err := d.open(); err != nil {
		return nil, err
	}
	var before []byte
	for _, path := range []string{d.path + ".1", d.path} {
		raw, err := os.ReadFile(path)
		if missing(err, nil) != nil {
			return nil, errors.Join(err, d.Close())
		}
		before = append(before, raw...)
	}
	if len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) { // the machine went down in the middle of a line
		if _, err := d.Write([]byte("\n")); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	e.KeepRegistryDecisions(bytes.Lines(before), d)
	return d, nil
}

func (d *decisions) open() error {
	f, err := os.OpenFile(d.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	d.file, d.size = f, info.Size()
	return nil
}

// Write appends a line, whole.
func (d *decisions) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.size > 0 && d.size+int64(len(line)) > maxDecisionsFile {
		if err := errors.Join(d.file.Close(), os.Rename(d.path, d.path+".1"), d.open()); err != nil {
			return 0, err
		}
	}
	n, err := d.file.Write(line)
	d.size += int64(n)
	return n, err
}

// Close ends the file. What is decided afterwards is in the log alone.
func (d *decisions) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file.Close()
}
