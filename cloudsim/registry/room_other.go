//go:build !linux

package registry

import "math"

// The function free returns the largest possible number, because it cannot
// measure the free space on this system. So checkFreeSpace always succeeds, and
// pushes fail only when the disk is full.
func free(string) (int64, error) { return math.MaxInt64, nil }
