//go:build !linux

package dataplane

import (
	"math"
	"net"
	"syscall"
)

// waiting sets no bound: there is no splice here, so nothing is held by a read
// that waits but its buffer.
func waiting(syscall.RawConn) (int64, error) { return math.MaxInt64, nil }

// unsent cannot be asked here: a slow reader has the idle timeout to take what
// waits for it.
func unsent(*net.TCPConn) bool { return false }
