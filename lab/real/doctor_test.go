package real

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Doctor counts the inotify instances in use. It reports a problem if too few instances are free.
func TestInotify(t *testing.T) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if inotifyInstances() == 0 {
		t.Error("inotifyInstances does not count the instance that this test created")
	}
	for _, tc := range []struct {
		most, taken int
		want        string
	}{
		{128, 0, ""},
		{128, 81, ""},
		{128, 82, "enough for 2 machines"},
		{128, 128, "enough for 0 machines"},
	} {
		if got := inotifyProblem(tc.most, tc.taken); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%d of %d: %q, want %q", tc.taken, tc.most, got, tc.want)
		}
	}
}
