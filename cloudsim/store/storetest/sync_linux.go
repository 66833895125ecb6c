// Package storetest makes the syncs of a store's file fail in tests.
package storetest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BreakSync replaces the open descriptors of the file at path with descriptors of
// /dev/null, which accepts each write and fails each sync. The returned function
// mend restores the descriptors.
func BreakSync(t *testing.T, path string) (mend func()) {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	saved := map[int]int{}
	for _, e := range all {
		var fd int
		if at, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || at != path {
			continue
		}
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			t.Fatal(err)
		}
		if saved[fd], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	if len(saved) == 0 {
		t.Fatalf("no descriptor of %s is open", path)
	}
	return func() {
		for fd, was := range saved {
			if err := errors.Join(unix.Dup3(was, fd, unix.O_CLOEXEC), unix.Close(was)); err != nil {
				t.Error(err)
			}
		}
	}
}
