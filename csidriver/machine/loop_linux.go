package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Loop is a loop device, held open: as long as it is, the kernel gives its
// number to no other file.
type Loop struct {
	dev    *os.File
	Number int
}

// Device is the path of the device.
func (l *Loop) Device() string { return l.dev.Name() }

// Close lets go of the device; it stays what it is.
func (l *Loop) Close() error { return l.dev.Close() }

// Attach returns the loop device of a file, which it makes if there is none.
func Attach(ctx context.Context, path string, readOnly bool) (*Loop, error) {
	l, err := Find(path)
	if err != nil {
		return nil, err
	}
	if l != nil {
		if err := l.Verify(path); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, l.Refresh()
	}
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	file, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("no loop devices on this machine: %w", err)
	}
	defer control.Close()
	for {
		l, err := configure(control, file, mode)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
		if err := pause(ctx); err != nil { // another process was faster
			return nil, err
		}
	}
}

// tick is how long to wait between two looks at what has no event.
const tick = 5 * time.Millisecond

func pause(ctx context.Context) error {
	t := time.NewTimer(tick)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// configure puts file behind the first free device. EBUSY says that the
// device was free a moment ago.
func configure(control, file *os.File, mode int) (*Loop, error) {
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("a free loop device: %w", err)
	}
	name := "/dev/loop" + strconv.Itoa(n)
	dev, err := os.OpenFile(name, mode, 0)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	c := unix.LoopConfig{Fd: uint32(file.Fd())}
	if mode == os.O_RDONLY {
		c.Info.Flags = unix.LO_FLAGS_READ_ONLY
	}
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), &c); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// What is kept open may not write: mounting a device that another may
	// write to is what kernels can be told to refuse.
	keep, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &Loop{dev: keep, Number: n}, nil
}

// Find returns the loop device of a file, also of one that was removed since;
// nil if there is none. It need not be the file that has that name now: see
// Verify. Its price is a read for each loop device that is in use.
func Find(path string) (*Loop, error) {
	path, err := realpath(path)
	if err != nil {
		return nil, err
	}
	there, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, f := range there {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has just gone
		}
		if strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), " (deleted)") != path {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(f))), "loop"))
		if err != nil {
			return nil, err
		}
		dev, err := os.Open("/dev/loop" + strconv.Itoa(n))
		if err != nil {
			return nil, err
		}
		l := &Loop{dev: dev, Number: n}
		if _, err := unix.IoctlLoopGetStatus64(int(dev.Fd())); err != nil {
			dev.Close()
			continue // it went between the two looks
		}
		return l, nil
	}
	return nil, nil
}

// realpath is path without symbolic links; the file itself may be missing.
func realpath(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// Verify fails unless the file of that name, by its inode, is behind l.
func (l *Loop) Verify(path string) error {
	info, err := unix.IoctlLoopGetStatus64(int(l.dev.Fd()))
	if err != nil {
		return fmt.Errorf("%s: %w", l.Device(), err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if info.Inode != st.Ino || info.Device != st.Dev {
		return fmt.Errorf("%s is not of %s: inode %d, not %d", l.Device(), filepath.Base(path), info.Inode, st.Ino)
	}
	return nil
}

// Refresh tells the device that its file may have grown.
func (l *Loop) Refresh() error {
	if err := unix.IoctlSetInt(int(l.dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("%s: to see its new size: %w", l.Device(), err)
	}
	return nil
}

// Size is how large the device is.
func (l *Loop) Size() (int64, error) { return l.dev.Seek(0, 2) }

// IsReadOnly reports whether the device refuses writes.
func (l *Loop) IsReadOnly() (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(l.dev.Fd()))
	if err != nil {
		return false, err
	}
	return info.Flags&unix.LO_FLAGS_READ_ONLY != 0, nil
}

// Detach takes the file from behind the device and closes it. The kernel does
// so when the last who has it open lets go.
func (l *Loop) Detach() error {
	err := unix.IoctlSetInt(int(l.dev.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil // it had none any more
	}
	return errors.Join(err, l.dev.Close())
}
