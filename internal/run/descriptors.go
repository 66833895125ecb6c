package run

import "syscall"

// Descriptors is how many file descriptors this process may have open.
func Descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the smallest usual limit
	}
	return int(min(limit.Cur, 1<<20)) // unlimited is larger than an int
}
