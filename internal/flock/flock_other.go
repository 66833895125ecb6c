//go:build !unix

package flock

import (
	"errors"
	"os"
)

// Try returns errors.ErrUnsupported, because this system has no flock.
func Try(*os.File) (bool, error) { return false, errors.ErrUnsupported }
