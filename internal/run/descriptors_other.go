//go:build !unix

package run

import "errors"

// Descriptors returns 16384, because this system has no limit that a process can read.
func Descriptors() int { return 16384 }

// setMode returns errors.ErrUnsupported, because this system cannot change the permissions of an
// open file.
func setMode(uintptr, uint32) error { return errors.ErrUnsupported }
