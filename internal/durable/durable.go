// Package durable makes what was written outlast a power cut.
package durable

import (
	"errors"
	"os"
)

// Names makes the names in a folder durable: which files are there, and not
// what is in them, which is each file's own Sync.
func Names(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
