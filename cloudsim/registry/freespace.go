package registry

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"

	oci "cuelabs.dev/go/oci/ociregistry"
)

// spaceCheckInterval is the number of bytes that an upload writes between two checks of the free
// space. An upload does not check the free space at each write, because a check needs a system
// call.
const spaceCheckInterval = 16 << 20

// freeSpaceAdvice is the end of each error about a lack of space.
const freeSpaceAdvice = "delete manifests and wait for the garbage collection, or delete other files"

// noSpaceError returns an error with status 507 (RFC 4918 section 11.5), because the
// distribution specification has no code for a full disk.
func noSpaceError(why string) error {
	return oci.NewHTTPError(errors.New(why), http.StatusInsufficientStorage, nil, nil)
}

// checkFreeSpace returns an error if a write of n bytes would leave less free space than the
// reserve. The reserve is space for other data on this disk, such as the cloud's records. If the
// reserve is negative, checkFreeSpace returns nil.
func (f *files) checkFreeSpace(n int64) error {
	if f.reserve < 0 {
		return nil
	}
	has, err := freeBytes(f.dir)
	if err != nil {
		return err
	}
	if has-n < f.reserve {
		return noSpaceError(fmt.Sprintf("the registry's disk has too little free space for this push: %d MiB are free, and %d MiB must stay free for other data: "+freeSpaceAdvice, has>>20, f.reserve>>20))
	}
	return nil
}

// replaceDiskFull replaces the system's error for a full disk. The new error has status 507.
// replaceDiskFull does not change other errors.
func replaceDiskFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return noSpaceError("the registry's disk is full: " + freeSpaceAdvice)
	}
	return err
}
