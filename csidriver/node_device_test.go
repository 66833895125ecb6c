package csidriver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// newDeviceBench starts a driver that uses the devices of attached disks, as on a real node of the
// lab. It returns the bench of this driver.
func newDeviceBench(t *testing.T) *bench {
	t.Helper()
	b := newNodeBench(t)
	o := &bench{t: t, cloud: b.cloud, dir: b.path("node"), vm: b.vm, size: b.size}
	if err := errors.Join(os.Mkdir(o.dir, 0o700), os.Symlink(b.path("disks"), o.path("disks"))); err != nil {
		t.Fatal(err)
	}
	o.serve(NodeConfig{Instance: o.vm.ID, DisksDir: cloudsim.DiskLinks})
	return o
}

// device makes the device of a disk, as the hypervisor does. It returns a function that removes
// the device.
func (b *bench) device(volume string, readOnly bool) (remove func()) {
	b.t.Helper()
	file := filepath.Join(b.path("disks"), volume+".img")
	if err := awaitSize(b.t.Context(), file, gib); err != nil {
		b.t.Fatal(err)
	}
	l, err := loop.New(b.t.Context(), "/var/lib/lab/disks/"+volume+".img", string(b.vm.ID), file, readOnly, false)
	if err != nil {
		b.t.Fatal(err)
	}
	link := cloudsim.DiskID(volume).Link()
	if err := errors.Join(l.Close(), os.MkdirAll(cloudsim.DiskLinks, 0o755), os.Symlink(l.Device(), link)); err != nil {
		b.t.Fatal(err)
	}
	exists := true
	remove = func() {
		if !exists {
			return
		}
		exists = false
		d, err := loop.Open(l.Number)
		if err == nil && d != nil {
			err = d.Fence()
		}
		if err := errors.Join(os.Remove(link), err); err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(remove)
	return remove
}

// TestDevicesOfTheHypervisor proves that the driver stages the devices of attached disks without
// a call to the cloud, and that it does not remove these devices.
func TestDevicesOfTheHypervisor(t *testing.T) {
	for _, fsType := range machine.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			b := newDeviceBench(t)
			c := mounted(fsType)
			v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
			b.publish(v, c)
			wantCode(t, "stage without a device", b.stage(v, c), codes.FailedPrecondition)
			remove := b.device(v, false)
			undo := b.injectFault("disks.*", cloudsim.FaultEffect{Type: cloudsim.FaultDrop}, 0)
			for range 2 {
				wantCode(t, "stage", b.stage(v, c), codes.OK)
				wantCode(t, "publish", b.show(v, "pod", c, false), codes.OK)
			}
			undo()
			if err := os.WriteFile(b.path("pod/hello"), []byte("world"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.growMounted(t, v, fsType)
			b.clear(v)
			if _, err := os.Stat(cloudsim.DiskID(v).Link()); err != nil {
				t.Errorf("device after the unstage call: Stat returned %v, want no error", err)
			}
			remove()

			// The next device of the disk is read-only. It contains the file that the test has
			// written.
			remove = b.device(v, true)
			reader := &csi.VolumeCapability{AccessType: c.GetAccessType(), AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY}}
			wantCode(t, "stage read-only", b.stage(v, reader), codes.OK)
			wantCode(t, "publish read-only", b.show(v, "pod", reader, true), codes.OK)
			if got, err := os.ReadFile(b.path("pod/hello")); string(got) != "world" {
				t.Errorf("file: got %q, %v; want world", got, err)
			}

			// The hypervisor removes the device by force, although the disk is mounted.
			remove()
			b.clear(v)
		})
	}
}

// TestBlockDevicesOfTheHypervisor proves that the driver stages the device of an attached disk as a
// block volume. After the hypervisor has removed the device, the driver can unpublish and unstage
// the volume.
func TestBlockDevicesOfTheHypervisor(t *testing.T) {
	b := newDeviceBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} })
	b.publish(v, raw())
	remove := b.device(v, false)
	wantCode(t, "stage", b.stage(v, raw()), codes.OK)
	wantCode(t, "publish", b.show(v, "pod", raw(), false), codes.OK)
	if err := b.writeTo("pod", "data"); err != nil {
		t.Fatal(err)
	}
	b.clear(v)
	wantCode(t, "stage as a filesystem", b.stage(v, mounted("ext4")), codes.FailedPrecondition)
	wantCode(t, "stage", b.stage(v, raw()), codes.OK)
	wantCode(t, "publish", b.show(v, "pod", raw(), false), codes.OK)
	if got := b.readStart("pod"); !strings.HasPrefix(got, "data") {
		t.Errorf("data of the volume: got %q", got)
	}

	// The hypervisor removes the device by force, although the volume is published. The device file
	// of this block volume is only bind-mounted, and no program has the device open. So the kernel
	// deletes the device at once.
	remove()
	wantCode(t, "unpublish", b.hide(v, "pod"), codes.OK)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}
