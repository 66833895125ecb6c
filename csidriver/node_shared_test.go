package csidriver

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

func withAccessMode(c *csi.VolumeCapability, mode accessMode) *csi.VolumeCapability {
	c.AccessMode.Mode = mode
	return c
}

// sharedVolume creates a volume that several nodes can attach at the same time.
func (b *bench) sharedVolume(name string, all ...*csi.VolumeCapability) string {
	b.t.Helper()
	return b.volume(name, func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities, r.Parameters, r.CapacityRange = all, map[string]string{"type": "fast"}, &csi.CapacityRange{RequiredBytes: 4 * gib}
	})
}

// deviceNumber returns the number of the device that the instance b.vm has for a volume. If the
// instance has no device, the method returns -1.
func (b *bench) deviceNumber(volume string) int {
	b.t.Helper()
	l, err := machine.FindFor(string(b.vm.ID), b.path("disks")+"/"+volume+".img")
	if err != nil {
		b.t.Fatal(err)
	}
	if l == nil {
		return -1
	}
	_ = l.Close()
	return l.Number
}

func (b *bench) readStart(target string) string {
	b.t.Helper()
	f, err := os.Open(b.path(target))
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 5)
	if _, err := f.ReadAt(got, 0); err != nil {
		b.t.Fatal(err)
	}
	return string(got)
}

func (b *bench) writeTo(target, data string) error {
	f, err := os.OpenFile(b.path(target), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(data+strings.Repeat("\x00", 4096-len(data))), 0); err != nil {
		return err
	}
	return f.Sync()
}

// TestSharedByTwoNodes proves that two nodes on one machine have separate
// devices for a shared block volume. If one node publishes the volume read-only
// or unstages the volume, the device of the second node does not change.
func TestSharedByTwoNodes(t *testing.T) {
	for _, mode := range []accessMode{csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER} {
		t.Run(mode.String(), func(t *testing.T) {
			one := newNodeBench(t)
			two := one.secondDriver("node-2", "small")
			c := withAccessMode(raw(), mode)
			v := one.sharedVolume("pvc-1", c)
			for _, b := range []*bench{one, two} {
				b.publish(v, c)
				wantCode(t, "stage", b.stage(v, c), codes.OK)
			}
			if a, b := one.deviceNumber(v), two.deviceNumber(v); a < 0 || b < 0 || a == b {
				t.Errorf("the nodes have the devices %d and %d, want two different devices", a, b)
			}
			wantCode(t, "publish for writing", one.show(v, "pod", c, false), codes.OK)
			wantCode(t, "publish for reading on the other node", two.show(v, "pod", c, true), codes.OK)
			if err := one.writeTo("pod", "hello"); err != nil {
				t.Errorf("the writer cannot write: %v", err)
			}
			if err := two.writeTo("pod", "bye"); err == nil {
				t.Error("the reader can write")
			}
			if got := two.readStart("pod"); got != "hello" {
				t.Errorf("the reader got %q, want hello", got)
			}
			wantCode(t, "publish for reading beside the writer", one.show(v, "reader", c, true), codes.FailedPrecondition)
			wantCode(t, "unstage too early", one.unstage(v), codes.FailedPrecondition)
			wantCode(t, "unpublish the writer", one.hide(v, "pod"), codes.OK)
			wantCode(t, "unstage", one.unstage(v), codes.OK)
			if one.deviceNumber(v) >= 0 || two.deviceNumber(v) < 0 {
				t.Errorf("after unstaging on the first node, the devices are %d and %d, want -1 and a device", one.deviceNumber(v), two.deviceNumber(v))
			}
			wantCode(t, "unpublish the reader", two.hide(v, "pod"), codes.OK)
			wantCode(t, "publish for writing on the other node", two.show(v, "pod", c, false), codes.OK)
			if err := two.writeTo("pod", "bye"); err != nil {
				t.Errorf("the second node cannot write: %v", err)
			}
			wantCode(t, "unpublish", two.hide(v, "pod"), codes.OK)
			wantCode(t, "unstage on the other node", two.unstage(v), codes.OK)
		})
	}
}

// TestUnstageKeepsForeignDevices proves that unstaging does not remove the
// device of another node.
func TestUnstageKeepsForeignDevices(t *testing.T) {
	b := newNodeBench(t)
	c := withAccessMode(raw(), csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	v := b.sharedVolume("pvc-1", c)
	b.publish(v, c)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	other, err := machine.AttachFor(t.Context(), "i-ffffff", b.path("disks")+"/"+v+".img", false, false) // like a device of another node, whose mounts this process cannot see
	if err != nil {
		t.Fatal(err)
	}
	number := other.Number
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantCode(t, "unstage", b.unstage(v), codes.OK)
	}
	if other, err = machine.FindFor("i-ffffff", b.path("disks")+"/"+v+".img"); err != nil || other == nil || other.Number != number {
		t.Fatalf("device of the other node: got %v, %v; want %d", other, err, number)
	}
	if err := other.Detach(); err != nil {
		t.Error(err)
	}
}

// TestReadByTwoNodes proves that several nodes can share a volume with a
// filesystem, but only for reading. The driver refuses to create a filesystem
// volume for several writers. It also refuses to attach a single-node disk to a
// second node.
func TestReadByTwoNodes(t *testing.T) {
	one := newNodeBench(t)
	two := one.secondDriver("node-2", "small")
	for _, mode := range []accessMode{csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER} {
		_, err := one.CreateVolume(t.Context(), one.request("pvc-0", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities, r.Parameters = []*csi.VolumeCapability{withAccessMode(mounted("ext4"), mode)}, map[string]string{"type": "fast"}
		}))
		wantCode(t, "a filesystem for "+mode.String(), err, codes.InvalidArgument)
	}
	writer, reader := mounted("ext4"), withAccessMode(mounted("ext4"), csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)
	singleNodeDisk := one.volume("pvc-1")
	one.publish(singleNodeDisk, writer)
	_, err := two.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: singleNodeDisk, NodeId: string(two.vm.ID), VolumeCapability: writer})
	wantCode(t, "attach a single-node disk to a second node", err, codes.FailedPrecondition)

	v := one.sharedVolume("pvc-2", writer, reader)
	one.publish(v, writer)
	wantCode(t, "stage for writing", one.stage(v, writer), codes.OK)
	wantCode(t, "publish for writing", one.show(v, "pod", writer, false), codes.OK)
	if err := os.WriteFile(one.path("pod/hello"), []byte("world"), 0o600); err != nil {
		t.Fatal(err)
	}
	one.clear(v)
	must(t)(one.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(one.vm.ID)}))
	for _, b := range []*bench{one, two} {
		b.publish(v, reader)
		wantCode(t, "stage", b.stage(v, reader), codes.OK)
		wantCode(t, "publish", b.show(v, "pod", reader, false), codes.OK)
	}
	for _, b := range []*bench{one, two} {
		if got, err := os.ReadFile(b.path("pod/hello")); string(got) != "world" {
			t.Errorf("got %q, %v; want world", got, err)
		}
		if err := os.WriteFile(b.path("pod/b"), nil, 0o600); err == nil {
			t.Error("the read-only volume accepts writes")
		}
		b.clear(v)
	}
}

// TestJournalOfTwoNodes proves that two nodes can concurrently stage a copy of a disk that was in
// use. The filesystem of the copy has a journal to replay. Each node has its own device for the
// copy, but only one node at a time replays the journal.
func TestJournalOfTwoNodes(t *testing.T) {
	for _, fsType := range machine.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			one := newNodeBench(t)
			two := one.secondDriver("node-2", "small")
			writer, reader := mounted(fsType), withAccessMode(mounted(fsType), csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)
			v := one.volumeOf("pvc-1", fsType)
			one.publish(v, writer)
			wantCode(t, "stage", one.stage(v, writer), codes.OK)
			wantCode(t, "publish", one.show(v, "pod", writer, false), codes.OK)
			if err := os.WriteFile(one.path("pod/hello"), []byte("world"), 0o600); err != nil {
				t.Fatal(err)
			}
			dir, err := os.Open(one.path("pod"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
				t.Fatal(err)
			}
			s := must(t)(one.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s1", SourceVolumeId: v})).(*csi.CreateSnapshotResponse)
			one.clear(v)
			r := one.volume("pvc-2", from(s.GetSnapshot().GetSnapshotId(), ""), func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities, r.Parameters = []*csi.VolumeCapability{reader}, map[string]string{"type": "fast"}
				r.CapacityRange.RequiredBytes = 4 * gib
			})
			var both sync.WaitGroup
			for _, b := range []*bench{one, two} {
				b.publish(r, reader)
			}
			for _, b := range []*bench{one, two} {
				both.Go(func() { wantCode(t, "stage for reading", b.stage(r, reader), codes.OK) })
			}
			both.Wait()
			for _, b := range []*bench{one, two} {
				if got, err := os.ReadFile(b.path("stage-" + r + "/hello")); string(got) != "world" {
					t.Errorf("got %q, %v; want world", got, err)
				}
				wantCode(t, "unstage", b.unstage(r), codes.OK)
			}
		})
	}
}
