//go:build unix

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Try locks f exclusively, and reports false if another open file of any process
// holds the lock. Closing f releases the lock, and so does the death of the
// process.
func Try(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
