package loop

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
// Release at the end.
func Reserve() (int, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("no loop devices on this machine: %w", err)
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

// Release removes a reserved device. If the device has a file, Release first detaches this file. A
// missing device is no error.
func Release(n int) error {
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
	if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, n); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing %s: %w", Path(n), err)
	}
	return nil
}
