package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// firstReserved is the lowest number of a reserved device. Programs that ask the kernel for
// a free device get the lowest free number, so they get a reserved device only if all lower
// devices are in use. Attach never uses a reserved device.
const (
	firstReserved = 1 << 19
	lastReserved  = 1<<20 - 1 // the kernel's highest minor number
)

// Reserve makes a loop device without a file, and returns its number. A program without
// access to /dev/loop-control can attach a file to this device. The caller must call
// Release when it no longer needs the device.
func Reserve() (int, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot use loop devices on this machine: %w", err)
	}
	defer control.Close()
	for n := firstReserved; n <= lastReserved; n++ {
		err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, n)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", Path(n), err)
		}
		return n, nil
	}
	return 0, errors.New("all reserved loop devices are in use")
}

// Release removes a reserved device. If the device has a file, Release first detaches this file. If
// the device does not exist, Release returns nil.
//
// The kernel refuses to remove a device that a program has open. For example, udev opens each new
// device for a moment. So Release tries again for up to releaseTimeout.
func Release(ctx context.Context, n int) error {
	d, err := Open(n)
	if err != nil {
		return err
	}
	if d != nil {
		if err := d.Detach(); err != nil {
			return err
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for {
		err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, n)
		if err == nil || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || ctx.Err() != nil {
			return fmt.Errorf("removing %s: %w", Path(n), err)
		}
		backoff.Sleep(ctx, retryDelay)
	}
}

// releaseTimeout is the time after which Release returns an error for a device in use. Without this
// limit, one open device would prevent the caller's work on other devices.
const releaseTimeout = 5 * time.Second
