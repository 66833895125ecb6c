//go:build !linux

package disks

import "os"

const noFollow = 0

// alone is never sure.
func alone(*os.File) error { return errNotAlone }

func holdsData(*os.File) bool { return true }
