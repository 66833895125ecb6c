package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// detachDisks keeps a loop device while a machine has the device mounted. After the machine has
// ended, detachDisks detaches this device. It also detaches the second loop device, with which the
// kubelet locks the first device. It does not change the devices of other hypervisors.
func TestDetachDisks(t *testing.T) {
	if testing.Short() {
		t.Skip("short mode: the test creates loop devices")
	}
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	name := fmt.Sprintf("cloudsim-test-%d", os.Getpid())
	disks := disksDir(name)
	if err := os.MkdirAll(disks, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(disks)) })
	file, shown := filepath.Join(disks, "disk-000001.img"), filepath.Join(t.TempDir(), "device")
	for path, size := range map[string]int64{file: 1 << 20, shown: 0} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	device := loopOn(t, file)
	loopOn(t, device)
	if err := unix.Mount(device, shown, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	off := func(string) bool { return false } // no machine has its own /dev
	left := func() (n int) {
		all, err := loop.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if l.Name == file || l.Name == device {
				n++
			}
		}
		return n
	}
	if err := detachDisks(name, []int{os.Getpid()}, off); err != nil || left() != 2 {
		t.Errorf("got %d devices after detachDisks for a running machine, error %v; want 2", left(), err)
	}
	if err := detachDisks(name+"-beside", nil, off); err != nil || left() != 2 {
		t.Errorf("got %d devices after another hypervisor detached its own devices, error %v; want 2", left(), err)
	}
	if err := unix.Unmount(shown, 0); err != nil {
		t.Fatal(err)
	}
	if err := detachDisks(name, []int{os.Getpid()}, off); err != nil {
		t.Fatal(err)
	}
	// The test waits, because udev opens a loop device when the device changes. The kernel removes
	// the device only after udev has closed it.
	eventually.True(t, "no device of a dead machine is left", func() bool { return left() == 0 })
}

func loopOn(t *testing.T, file string) (device string) {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatalf("losetup: %v", err)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		all, err := loop.List()
		if err != nil {
			t.Error(err)
		}
		for _, l := range all {
			if l.Name == file && loop.Path(l.Number) == device { // another program can have the number now
				_ = exec.Command("losetup", "--detach", device).Run() // the kernel may have removed the device in the meantime
			}
		}
	})
	return device
}
