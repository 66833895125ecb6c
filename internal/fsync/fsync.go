// Package fsync writes changes of folders to the disk, so that a power failure
// does not undo these changes.
package fsync

import (
	"errors"
	"os"
)

// Dir syncs a folder, so that a power failure does not undo changes of the file
// names in the folder. It does not sync the contents of the files.
func Dir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
