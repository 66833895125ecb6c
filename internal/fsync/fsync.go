// Package fsync makes file system changes survive a power failure.
package fsync

import (
	"errors"
	"os"
)

// Dir syncs a folder, so that the names of its files survive a power failure.
// It does not sync the contents of the files.
func Dir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
