//go:build unix

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Try locks f exclusively. It returns false if the file is already locked, even if the same
// process locked it through another os.File. The kernel releases the lock when the process closes
// f or ends.
func Try(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
