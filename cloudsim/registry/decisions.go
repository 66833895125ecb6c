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

// decisionsFile is the name of the file with the registry's audit trail, one JSON document
// per line. When the file is full, decisionLog adds the suffix ".1" to the name of the file, and
// starts a new file.
const decisionsFile = "decisions.jsonl"

// maxDecisionsFile is the maximum size of an audit file in bytes. A file of this size
// contains about ten thousand decisions.
const maxDecisionsFile = 4 << 20

// decisionLog writes the registry's audit trail to a file. It writes each line before the
// registry answers the request, so that a crash of the process does not lose the line. But a
// crash of the machine can lose lines, because the registry does not sync the file. A sync
// would add the latency of the disk to each pull.
type decisionLog struct {
	path string
	mu   sync.Mutex
	file *os.File
	size int64
}

// keepDecisions opens the audit trail in dir and loads the stored decisions into the engine. The
// engine then writes each new decision to the returned decisionLog.
func keepDecisions(dir string, e *engine.Engine) (*decisionLog, error) {
	d := &decisionLog{path: filepath.Join(dir, decisionsFile)}
	if err := d.open(); err != nil {
		return nil, err
	}
	var before []byte
	for _, path := range []string{d.path + ".1", d.path} {
		raw, err := os.ReadFile(path)
		if replaceNotExist(err, nil) != nil {
			return nil, errors.Join(err, d.Close())
		}
		before = append(before, raw...)
	}
	if len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) { // the machine crashed during the write of the last line
		if _, err := d.Write([]byte("\n")); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	e.KeepRegistryDecisions(bytes.Lines(before), d)
	return d, nil
}

func (d *decisionLog) open() error {
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

// Write appends one line. If the line would make the file larger than maxDecisionsFile, Write first
// renames the file and starts a new file.
func (d *decisionLog) Write(line []byte) (int, error) {
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

// Close closes the file. If the engine writes a decision after the call, the write fails and the
// engine logs the error.
func (d *decisionLog) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file.Close()
}
