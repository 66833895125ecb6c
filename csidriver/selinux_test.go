package csidriver

import (
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// These are SELinux labels. askedLabel and otherLabel have the form in which
// the kubelet passes labels, with quotes and with categories in any order.
// shownLabel is askedLabel in the form in which the kernel shows labels.
const (
	askedLabel = `context="system_u:object_r:usr_t:s0:c10,c5"`
	shownLabel = "system_u:object_r:usr_t:s0:c5,c10"
	otherLabel = `context="system_u:object_r:usr_t:s0:c7"`
)

func needSELinux(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		t.Skipf("this machine has no SELinux, run the test with make vm-test: %v", err)
	}
}

func labelOf(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 256)
	n, err := unix.Getxattr(path, "security.selinux", b)
	if err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(b[:n])
}

// TestSELinuxMount proves that the driver mounts a volume with the requested
// SELinux label (KEP-1710). Until the driver unstages the volume, it refuses
// every other label for this volume.
func TestSELinuxMount(t *testing.T) {
	for _, fsType := range machine.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			b := newNodeBench(t)
			needSELinux(t)
			v, other := b.volumeOf("pvc-1", fsType), b.volumeOf("pvc-2", fsType)
			c, otherwise := mounted(fsType, askedLabel), mounted(fsType, otherLabel)
			b.publish(v, c)
			b.publish(other, otherwise)
			wantCode(t, "stage with an invalid label", b.stage(v, mounted(fsType, "context=nonsense")), codes.InvalidArgument)
			for range 2 {
				wantCode(t, "stage", b.stage(v, c), codes.OK)
				wantCode(t, "publish", b.show(v, "pod", c, false), codes.OK)
			}
			wantCode(t, "stage another with another label", b.stage(other, otherwise), codes.OK)
			wantCode(t, "publish the other", b.show(other, "other-pod", otherwise, false), codes.OK)
			for path, want := range map[string]string{"pod": shownLabel, "other-pod": "system_u:object_r:usr_t:s0:c7"} {
				if err := os.WriteFile(b.path(path+"/file"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if got := labelOf(t, b.path(path+"/file")); got != want {
					t.Errorf("a file in %s has the label %s, want %s", path, got, want)
				}
			}
			wantCode(t, "stage with another label", b.stage(v, otherwise), codes.AlreadyExists)
			wantCode(t, "stage without a label", b.stage(v, mounted(fsType)), codes.AlreadyExists)
			wantCode(t, "publish with another label", b.show(v, "third-pod", otherwise, false), codes.FailedPrecondition)
			wantCode(t, "unpublish", b.hide(other, "other-pod"), codes.OK)
			wantCode(t, "unstage", b.unstage(other), codes.OK)
			b.clear(v)
			wantCode(t, "stage with another label after unstaging", b.stage(v, otherwise), codes.OK)
			wantCode(t, "unstage", b.unstage(v), codes.OK)
		})
	}
}

// TestSELinuxLabelsStay stages a volume without an SELinux label in the request. It proves that the
// files keep the labels that the container runtime gave them.
func TestSELinuxLabelsStay(t *testing.T) {
	for _, fsType := range machine.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			b := newNodeBench(t)
			needSELinux(t)
			v, c := b.volumeOf("pvc-1", fsType), mounted(fsType)
			b.publish(v, c)
			for first := range 2 {
				wantCode(t, "stage", b.stage(v, c), codes.OK)
				wantCode(t, "publish", b.show(v, "pod", c, false), codes.OK)
				file := b.path("pod/file")
				if first == 0 {
					if err := os.WriteFile(file, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					if err := unix.Setxattr(file, "security.selinux", []byte(shownLabel), 0); err != nil {
						t.Fatal(err)
					}
				}
				if got := labelOf(t, file); got != shownLabel {
					t.Errorf("label of the file: got %s, want %s", got, shownLabel)
				}
				wantCode(t, "publish with a label", b.show(v, "labeled", mounted(fsType, askedLabel), false), codes.FailedPrecondition)
				b.clear(v)
			}
		})
	}
}

func (b *bench) volumeOf(name, fsType string) string {
	return b.volume(name, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{mounted(fsType)} })
}
