//go:build unix

package run

import "syscall"

// Descriptors returns the number of file descriptors that this process may open.
func Descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the smallest usual limit
	}
	return int(min(limit.Cur, 1<<20)) // an unlimited value does not fit into an int
}

func setMode(fd uintptr, mode uint32) error { return syscall.Fchmod(int(fd), mode) }
