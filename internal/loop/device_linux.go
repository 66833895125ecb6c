package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// Major is the major device number that the kernel uses for loop devices (devices.txt).
const Major = 7

// Loop is an open loop device. While the device is open, the kernel does not give
// the number of the device to another file. In this package, the kernel's flag
// LO_FLAGS_AUTOCLEAR of a device is called the lapse flag.
type Loop struct {
	dev    *os.File // nil if this process cannot open the device; then only Number is set
	Number int
}

// Path returns the path of device number n.
func Path(n int) string { return "/dev/loop" + strconv.Itoa(n) }

// Device returns the path of the device.
func (d *Loop) Device() string { return Path(d.Number) }

// Close closes the device. If the device has the lapse flag (LO_FLAGS_AUTOCLEAR) and no other
// program and no mount uses the device, the kernel then detaches the file. Otherwise the file stays
// attached to the device. For a Loop that is not open, Close does nothing.
func (d *Loop) Close() error {
	if d.dev == nil {
		return nil
	}
	return d.dev.Close()
}

// Attach returns the loop device that the given node has for a file. If the node has no device for
// the file, Attach creates a device. If lapses is true, the new device has the lapse flag
// (LO_FLAGS_AUTOCLEAR). Attach does not change the flag of an existing device. The methods Lapse
// and Stay change this flag.
//
// Attach returns an error if path is a symbolic link. If several nodes of one
// host share a disk, each node has its own device. If node is empty, Attach
// returns any existing device of the file.
//
// If a device has the lapse flag, the kernel detaches the file when no program has the device open
// and no mount uses the device's filesystem. For example, this happens at the end of a process or
// of a mount namespace. A bind mount of the device file does not keep the file attached. So a
// device that only bind mounts use must not have the lapse flag.
func Attach(ctx context.Context, node, path string, readOnly, lapses bool) (*Loop, error) {
	d, err := Find(node, path)
	if err != nil {
		return nil, err
	}
	if d != nil {
		if err := d.Refresh(); err != nil {
			return nil, errors.Join(err, d.Close())
		}
		return d, nil
	}
	return New(ctx, path, node, path, readOnly, lapses)
}

// New makes a loop device for the file at path. The parameter node names the node that owns the
// device. If this node already has a device for the file, New makes another device. List returns
// the given name in Status.Name, so a program can recognize its own devices. See Attach for the
// other parameters and for the errors.
func New(ctx context.Context, name, node, path string, readOnly, lapses bool) (*Loop, error) {
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	file, err := OpenFile(path, mode)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot use loop devices on this machine: %w", err)
	}
	defer control.Close()
	for {
		d, err := configure(control, file, label(name, node), mode, lapses)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENXIO) {
			return d, err
		}
		backoff.Sleep(ctx, retryDelay) // another process took the number, or is removing the device
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// OpenFile opens the file of a disk. It returns an error for a symbolic link,
// because another process may write to the folder of the disks. Without this
// check, a link in the folder could make the caller open another file.
func OpenFile(path string, mode int) (*os.File, error) {
	f, err := os.OpenFile(path, mode|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errLink(path)
	}
	return f, err
}

func errLink(path string) error {
	return fmt.Errorf("%s is not a regular file: the data of a disk must not be behind a link; move the file back", filepath.Base(path))
}

// retryDelay is the time between two attempts to make or to remove a device.
const retryDelay = 5 * time.Millisecond

// configure attaches the given file to the first free device. It returns EBUSY
// if another process has taken the device in the meantime. It returns ENXIO if
// another process is removing the device.
func configure(control, file *os.File, name [unix.LO_NAME_SIZE]byte, mode int, lapses bool) (*Loop, error) {
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err == nil && n >= firstReserved { // all lower devices are in use, so make another device and try again
		err = errors.Join(unix.EBUSY, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, -1))
	}
	if err != nil {
		return nil, fmt.Errorf("looking for a free loop device: %w", err)
	}
	dev, err := os.OpenFile(Path(n), mode, 0)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	c := unix.LoopConfig{Fd: uint32(file.Fd())}
	c.Info.File_name = name
	if mode == os.O_RDONLY {
		c.Info.Flags = unix.LO_FLAGS_READ_ONLY
	}
	if lapses {
		c.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), &c); err != nil {
		return nil, fmt.Errorf("%s: %w", Path(n), err)
	}
	// The descriptor that stays open is read-only, because some kernels refuse
	// mounts of devices that are open for writing.
	keep, err := os.Open(Path(n))
	if err != nil {
		return nil, errors.Join(err, unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0))
	}
	d := &Loop{dev: keep, Number: n}
	if mode == os.O_RDWR {
		// Since Linux 5.12, the kernel keeps the read-only flag of a device number
		// when the number gets another file. Clear the flag, so that the device
		// accepts writes.
		if err := d.refuseWrites(false); err != nil {
			return nil, errors.Join(err, d.Detach())
		}
	}
	return d, nil
}

// Refresh makes the kernel read the size of the file again, because the file may
// have grown.
func (d *Loop) Refresh() error {
	if err := unix.IoctlSetInt(int(d.dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("%s: updating the size of the device: %w", d.Device(), err)
	}
	return nil
}

// Lapse sets the lapse flag. The kernel then detaches the file when no program and no mount uses
// the device.
func (d *Loop) Lapse() error { return d.setLapse(true) }

// Stay clears the lapse flag. The kernel then keeps the file attached, even when no program and no
// mount uses the device.
func (d *Loop) Stay() error { return d.setLapse(false) }

// Lapses reports whether the device has the lapse flag (LO_FLAGS_AUTOCLEAR).
func (d *Loop) Lapses() (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(d.dev.Fd()))
	if err != nil {
		return false, fmt.Errorf("%s: %w", d.Device(), err)
	}
	return info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0, nil
}

func (d *Loop) setLapse(lapses bool) error {
	info, err := unix.IoctlLoopGetStatus64(int(d.dev.Fd()))
	if err != nil || (info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0) == lapses {
		return err
	}
	info.Flags ^= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(int(d.dev.Fd()), info); err != nil {
		return fmt.Errorf("%s: changing the autoclear flag of the device: %w", d.Device(), err)
	}
	return nil
}

// fencedOffset is the offset in the file to which Fence moves the start of the device. No file
// reaches this offset, so a fenced device has no sectors. A kernel before Linux 6.6 can send a
// write even to a device without sectors. This write fails, because files cannot have data at this
// offset.
const fencedOffset = math.MaxInt64 &^ 4095

// Fence prevents all access to the file through the device, and closes the device. It works even if
// another program has the device open or if a mount uses the device's filesystem. If the kernel's
// cache contains data that programs wrote directly to the device, Fence first writes this data to
// the file. It also waits for running requests. After Fence has returned, all reads and writes of
// the device fail.
//
// The kernel detaches the file when no program and no mount uses the device. If the device has no
// file, Fence only closes the device.
func (d *Loop) Fence() error {
	info, err := unix.IoctlLoopGetStatus64(int(d.dev.Fd()))
	if err == nil {
		info.Offset = fencedOffset
		err = unix.IoctlLoopSetStatus64(int(d.dev.Fd()), info)
	}
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return errors.Join(fmt.Errorf("%s: disconnecting the device from its file: %w", d.Device(), err), d.dev.Close())
	}
	return d.Detach()
}

// Size returns the size of the device in bytes.
func (d *Loop) Size() (int64, error) { return d.dev.Seek(0, 2) }

// IsReadOnly reports whether the file was attached to the device read-only. It ignores the
// read-only flag that Guard sets.
func (d *Loop) IsReadOnly() (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(d.dev.Fd()))
	if err != nil {
		return false, err
	}
	return info.Flags&unix.LO_FLAGS_READ_ONLY != 0, nil
}

// Guard makes the device refuse writes if readOnly is true. Otherwise it makes
// the device accept writes. If New or Attach made the device read-only, Guard
// does nothing. Callers need Guard, because a read-only bind mount of a device
// node does not prevent writes to the device.
func (d *Loop) Guard(readOnly bool) error {
	fixed, err := d.IsReadOnly()
	if err != nil || fixed {
		return err
	}
	return d.refuseWrites(readOnly)
}

func (d *Loop) refuseWrites(yes bool) error {
	flag := 0
	if yes {
		flag = 1
	}
	if err := unix.IoctlSetPointerInt(int(d.dev.Fd()), unix.BLKROSET, flag); err != nil {
		return fmt.Errorf("%s: changing the read-only flag of the device: %w", d.Device(), err)
	}
	return nil
}

// Detach detaches the file from the device and closes the device. If other programs have the device
// open, the kernel detaches the file when the last program closes the device. Detach clears the
// read-only flag, because the kernel keeps this flag for the next file of the device number. If the
// device has no file, Detach only closes the device.
func (d *Loop) Detach() error {
	err := d.Guard(false)
	if err == nil {
		err = unix.IoctlSetInt(int(d.dev.Fd()), unix.LOOP_CLR_FD, 0)
	}
	if errors.Is(err, unix.ENXIO) {
		err = nil // the device has no file any more
	}
	if err != nil {
		err = fmt.Errorf("%s: detaching the file of the device: %w", d.Device(), err)
	}
	return errors.Join(err, d.dev.Close())
}
