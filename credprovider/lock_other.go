//go:build !unix

package credprovider

import (
	"errors"
	"io/fs"
	"os"
)

// tryLock cannot: there is no kubelet with such a plugin here, and no cache.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func owned(fs.FileInfo) bool { return false }
