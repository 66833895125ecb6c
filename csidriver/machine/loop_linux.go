package machine

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/internal/loop"
)

// Loop is an open loop device with a method that lists its mounts.
type Loop struct{ *loop.Loop }

// tick is the interval at which the package polls a state for which the kernel
// has no event.
const tick = 5 * time.Millisecond

// Attach calls AttachFor without a node.
func Attach(ctx context.Context, path string, readOnly, lapses bool) (*Loop, error) {
	return AttachFor(ctx, "", path, readOnly, lapses)
}

// AttachFor returns a node's loop device for a file, and makes the device if
// there is none. See loop.Attach.
func AttachFor(ctx context.Context, node, path string, readOnly, lapses bool) (*Loop, error) {
	return wrap(loop.Attach(ctx, node, path, readOnly, lapses))
}

// Find calls FindFor without a node.
func Find(path string, near ...string) (*Loop, error) { return FindFor("", path, near...) }

// FindFor returns a node's loop device for a file, or nil. See loop.Find.
func FindFor(node, path string, near ...string) (*Loop, error) {
	return wrap(loop.Find(node, path, near...))
}

func wrap(d *loop.Loop, err error) (*Loop, error) {
	if err != nil || d == nil {
		return nil, err
	}
	return &Loop{d}, nil
}

// FileAt returns the name of the file behind the loop device that is mounted at
// path. The mount is a mount of the device's filesystem, or a bind mount of the
// device file. FileAt returns "" if there is no such mount. For a deleted file
// it returns the former name.
func FileAt(path string) (string, error) {
	at, err := mountPoint(path)
	if err != nil || at == "" {
		return "", err
	}
	n, ok := loop.At(at)
	if !ok {
		return "", nil
	}
	name, err := loop.BackingFile(n)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the device was removed
	}
	return strings.TrimSuffix(name, " (deleted)"), err
}

// realpath returns path without symbolic links in its folder and without a slash
// at its end, as in the kernel's mount table. The file itself may be a link or
// missing.
func realpath(path string) (string, error) {
	path = filepath.Clean(path)
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}
