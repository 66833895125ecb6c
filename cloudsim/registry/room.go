package registry

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"

	oci "cuelabs.dev/go/oci/ociregistry"
)

// betweenLooks is how much of a blob is written between two looks at the room
// that there is. A look is one system call.
const betweenLooks = 16 << 20

// noRoom is an error for the client: 507 of RFC 4918 section 11.5, for which the
// distribution specification has no code.
func noRoom(why string) error {
	return oci.NewHTTPError(errors.New(why), http.StatusInsufficientStorage, nil, nil)
}

// room refuses to write so many more bytes if less than what is reserved would be
// left. What else is on the registry's disk, as the cloud's own records, must go on
// when somebody pushes without end.
func (f *files) room(more int64) error {
	if f.reserve < 0 {
		return nil
	}
	has, err := free(f.dir)
	if err != nil {
		return err
	}
	if has-more < f.reserve {
		return noRoom(fmt.Sprintf("the registry's disk has %d MiB left, of which %d are not for images: delete manifests and wait for the collection, or make room", has>>20, f.reserve>>20))
	}
	return nil
}

// full tells a client of a disk that has no room at all.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return noRoom("the registry's disk is full")
	}
	return err
}
