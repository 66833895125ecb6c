//go:build !linux

package dataplane

import (
	"math"
	"syscall"
)

// waiting sets no bound: there is no splice here, so nothing is held by a read
// that waits but its buffer.
func waiting(syscall.RawConn) (int64, error) { return math.MaxInt64, nil }
