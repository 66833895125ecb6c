package csidriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// injectFault applies the effect e to the calls of an operation until the
// caller calls undo. It affects at most maxCalls calls, or all calls if
// maxCalls is 0.
func (b *bench) injectFault(operation string, e cloudsim.FaultEffect, maxCalls uint64) (undo func()) {
	b.t.Helper()
	f := must(b.t)(b.cloud.CreateFault(b.t.Context(), cloudsim.CreateFault{
		Name: "broken", FaultSpec: cloudsim.FaultSpec{Match: cloudsim.FaultMatch{Operation: operation}, When: cloudsim.FaultWhen{Max: maxCalls}, Effect: e},
	})).(cloudsim.Fault)
	return func() {
		if err := b.cloud.DeleteFault(b.t.Context(), f.ID); err != nil {
			b.t.Error(err)
		}
	}
}

// TestBrokenCloud proves that CreateVolume returns the correct error code if
// the cloud is down, throttles calls or has no quota left. A failed
// CreateVolume leaves no disk.
func TestBrokenCloud(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for name, c := range map[string]struct {
		effect cloudsim.FaultEffect
		want   []codes.Code
	}{
		"down":      {cloudsim.FaultEffect{Type: cloudsim.FaultDrop}, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}},
		"throttled": {cloudsim.FaultEffect{Type: cloudsim.FaultThrottle}, []codes.Code{codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded}},
		"full":      {cloudsim.FaultEffect{Type: cloudsim.FaultQuota}, []codes.Code{codes.ResourceExhausted}},
	} {
		undo := b.injectFault("disks.create", c.effect, 0)
		_, err := b.CreateVolume(ctx, b.request("pvc-"+name))
		ok := false
		for _, want := range c.want {
			ok = ok || status.Code(err) == want
		}
		if !ok {
			t.Errorf("%s: got %v, want one of %v", name, err, c.want)
		}
		undo()
	}
	if l := must(t)(b.cloud.ListDisks(t.Context(), cloudsim.ListOptions{})).(cloudsim.List[cloudsim.Disk]); len(l.Items) != 0 {
		t.Errorf("disks stay: %v", l.Items)
	}
}

// TestLostReplies proves that a caller can repeat every controller call after a
// lost reply. The cloud executes the work of each call only once.
func TestLostReplies(t *testing.T) {
	b := newBench(t)
	retry := func(operation string, call func() error) {
		t.Helper()
		err := call()
		for begin := time.Now(); status.Code(err) == codes.Unavailable && time.Since(begin) < time.Minute; {
			err = call()
		}
		wantCode(t, operation, err, codes.OK)
	}
	lose := cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply}
	var v string
	undo := b.injectFault("disks.*", lose, 3)
	retry("create", func() error {
		resp, err := b.CreateVolume(t.Context(), b.request("pvc-1"))
		v = resp.GetVolume().GetVolumeId()
		return err
	})
	undo()
	undo = b.injectFault("disks.*", lose, 3)
	retry("publish", func() error {
		_, err := b.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID), VolumeCapability: mounted("ext4")})
		return err
	})
	undo()
	undo = b.injectFault("disks.*", lose, 3)
	retry("expand", func() error {
		_, err := b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}})
		return err
	})
	undo()
	undo = b.injectFault("disks.*", lose, 3)
	retry("unpublish", func() error {
		_, err := b.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID)})
		return err
	})
	undo()
	d := must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(v))).(cloudsim.Disk)
	if d.SizeGiB != 2 || len(d.Attachments) != 0 {
		t.Errorf("the disk has %d GiB and the attachments %v, want 2 GiB and no attachment", d.SizeGiB, d.Attachments)
	}
	undo = b.injectFault("disks.*", lose, 3)
	defer undo()
	retry("delete", func() error {
		_, err := b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v})
		return err
	})
	if l := must(t)(b.cloud.ListDisks(t.Context(), cloudsim.ListOptions{})).(cloudsim.List[cloudsim.Disk]); len(l.Items) != 0 {
		t.Errorf("disks stay: %v", l.Items)
	}
}

// stagedVolume returns a volume that is staged, and published at the path "pod".
func (b *bench) stagedVolume(name string) string {
	b.t.Helper()
	v, c := b.volume(name), mounted("ext4")
	b.publish(v, c)
	wantCode(b.t, "stage", b.stage(v, c), codes.OK)
	wantCode(b.t, "publish", b.show(v, "pod", c, false), codes.OK)
	return v
}

// TestFullAndDeadFilesystems proves that the driver returns the usage of a full
// filesystem. It also proves that the driver can unpublish and unstage a volume
// after a shutdown of the filesystem. The driver can then stage the volume
// again.
func TestFullAndDeadFilesystems(t *testing.T) {
	b := newNodeBench(t)
	v := b.stagedVolume("pvc-1")
	f, err := os.Create(b.path("pod/big"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, size(t, f), 64<<20)
	}
	f.Close()
	if err != unix.ENOSPC {
		t.Fatalf("fill the filesystem: got %v, want ENOSPC", err)
	}
	s, err := b.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path("pod")})
	if err != nil || s.GetUsage()[0].GetAvailable() > 64<<20 || s.GetUsage()[0].GetTotal() > gib {
		t.Errorf("stats of a full volume: %v, %v", s, err)
	}
	shutdown(t, b.path("pod"))
	if _, err := os.ReadDir(b.path("pod")); err == nil {
		t.Log("the dead filesystem still answers from its cache")
	}
	b.clear(v)
	wantCode(t, "stage again", b.stage(v, mounted("ext4")), codes.OK)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// shutdown breaks the filesystem at path, with the ioctl EXT4_IOC_SHUTDOWN. The
// effect is the same as if the filesystem lost its device.
func shutdown(t *testing.T, path string) {
	t.Helper()
	d, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const ext4Shutdown, noLogFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(d.Fd()), ext4Shutdown, noLogFlush); err != nil {
		t.Fatalf("breaking the filesystem: %v", err)
	}
}

// fuse mounts a FUSE filesystem. The server of this filesystem does not answer. System calls on
// this filesystem hang until the test calls the function die. This function ends the server. The
// system calls then fail with ENOTCONN.
func fuse(t *testing.T, path string) (die func()) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE on this machine: %v", err)
	}
	if err := unix.Mount("silent", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())); err != nil {
		t.Fatal(err)
	}
	return func() { _ = server.Close() }
}

// TestHungDisk proves that a hung disk does not block the driver. Calls of
// NodeGetVolumeStats return DEADLINE_EXCEEDED, and only one goroutine hangs.
func TestHungDisk(t *testing.T) {
	b := newNodeBench(t)
	v := b.stagedVolume("pvc-1")
	n := &node{cfg: NodeConfig{Instance: b.vm.ID, DisksDir: b.path("disks")}, name: DefaultName, cloud: b.cloud, busy: newBusy(), checkTimeout: 50 * time.Millisecond}
	stats := func() error {
		_, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path("pod")})
		return err
	}
	wantCode(t, "stats before", stats(), codes.OK)
	die := fuse(t, b.path("disks"))
	for range 3 {
		wantCode(t, "stats of a disk that hangs", stats(), codes.DeadlineExceeded)
	}
	health := must(t)(n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v, VolumePublishPath: b.path("pod")})).(*csi.NodeGetVolumeHealthResponse)
	if all := health.GetVolumeHealth().GetHealthStatuses(); len(all) != 1 || all[0].GetReason() != "Hangs" || all[0].GetStatus() != csi.VolumeHealthErrorType_INACCESSIBLE {
		t.Errorf("got the health statuses %v, want one with the reason Hangs", all)
	}
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	if hung := strings.Count(stacks.String(), "(*node).usage("); hung != 1 {
		t.Errorf("got %d hung goroutines, want 1:\n%s", hung, stacks.String())
	}
	die()
	if err := unix.Unmount(b.path("disks"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for err := stats(); err != nil; err = stats() { // wait for the end of the hung call
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	b.clear(v)
}

// TestProbeOfNodeWithoutDiskType proves that a driver with only the node
// service needs no default disk type. If the driver's token is not valid, Probe
// returns an error.
func TestProbeOfNodeWithoutDiskType(t *testing.T) {
	b := newNodeBench(t)
	cfg := Default()
	cfg.Cloud, cfg.Node, cfg.Mode, cfg.DiskType = b.cloud, NodeConfig{Instance: b.vm.ID, DisksDir: b.dir}, ModeNode, ""
	i := &identity{cfg: cfg}
	resp, err := i.Probe(t.Context(), &csi.ProbeRequest{})
	if err != nil || !resp.GetReady().GetValue() {
		t.Errorf("probe: got %v, %v; want ready", resp, err)
	}
	stranger := *b.cloud
	stranger.Token = client.StaticToken("wrong")
	i.cfg.Cloud = &stranger
	_, err = i.Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, "probe with a wrong token", err, codes.FailedPrecondition)
}

// TestProbeOfBothServices proves that Probe checks the permissions of the node service even if the
// driver also has the controller service.
func TestProbeOfBothServices(t *testing.T) {
	b := newNodeBench(t)
	must(t)(b.cloud.CreateRole(t.Context(), cloudsim.CreateRole{Name: "types", Permissions: []cloudsim.Permission{"diskTypes.get"}}))
	tok := must(t)(b.cloud.CreateToken(t.Context(), cloudsim.CreateToken{Name: "types", Role: "types"})).(cloudsim.Token)
	limited := *b.cloud
	limited.Token = client.StaticToken(tok.Secret)
	cfg := Default()
	cfg.Cloud, cfg.Node = &limited, NodeConfig{Instance: b.vm.ID, DisksDir: b.dir}
	_, err := (&identity{cfg: cfg}).Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, "probe without the permission to list instances", err, codes.FailedPrecondition)
}

// TestHungFolder proves that Probe reports "not ready" within its time limit if
// accesses to the folder of the disks do not return. At most one goroutine of the
// driver hangs.
func TestHungFolder(t *testing.T) {
	b := newNodeBench(t)
	cfg := Default()
	cfg.Cloud, cfg.Node = b.cloud, NodeConfig{Instance: b.vm.ID, DisksDir: b.path("hung")}
	i := &identity{cfg: cfg}
	_, err := i.Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, "probe without the folder of the disks", err, codes.FailedPrecondition)
	if err := os.Mkdir(cfg.Node.DisksDir, 0o700); err != nil {
		t.Fatal(err)
	}
	ready := func() bool {
		within, cancel := context.WithTimeout(t.Context(), probeWithin)
		defer cancel()
		return must(t)(i.Probe(within, &csi.ProbeRequest{})).(*csi.ProbeResponse).GetReady().GetValue() && within.Err() == nil
	}
	if !ready() {
		t.Error("the driver is not ready before the folder hangs")
	}
	die := fuse(t, cfg.Node.DisksDir)
	t.Cleanup(func() { // unmount the folder before the test framework removes it, because this removal would hang
		die()
		if err := unix.Unmount(cfg.Node.DisksDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if ready() {
			t.Error("the driver is ready although the folder hangs")
		}
	}
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	if hung := strings.Count(stacks.String(), "os.Stat("); hung != 1 {
		t.Errorf("got %d hung goroutines, want 1:\n%s", hung, stacks.String())
	}
}

// TestCorruptedMount proves that calls return an error for a FUSE mount whose
// server has ended. The driver can remove this mount.
func TestCorruptedMount(t *testing.T) {
	b := newNodeBench(t)
	v, c := b.stagedVolume("pvc-1"), mounted("ext4")
	if err := os.Mkdir(b.path("dead"), 0o700); err != nil {
		t.Fatal(err)
	}
	fuse(t, b.path("dead"))()
	if _, err := os.Stat(b.path("dead")); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("stat of a mount with a dead server: got %v, want ENOTCONN", err)
	}
	_, err := b.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path("dead")})
	wantCode(t, "stats of a dead mount", err, codes.NotFound)
	wantCode(t, "publish on a dead mount", b.show(v, "dead", c, false), codes.FailedPrecondition)
	wantCode(t, "unpublish a dead mount", b.hide(v, "dead"), codes.OK)
	wantCode(t, "publish again", b.show(v, "dead", c, false), codes.OK)
	wantCode(t, "unpublish", b.hide(v, "dead"), codes.OK)
	b.clear(v)
}

// TestUnstageAfterOutsideChanges proves that the driver can unpublish and unstage a volume after
// changes by another program. The program removes a mount of the volume, adds a mount, or deletes
// the file of the disk.
func TestUnstageAfterOutsideChanges(t *testing.T) {
	b := newNodeBench(t)
	v := b.stagedVolume("pvc-1")
	if err := unix.Unmount(b.path("pod"), 0); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unpublish without its mount", b.hide(v, "pod"), codes.OK)
	if _, err := os.Stat(b.path("pod")); !os.IsNotExist(err) {
		t.Errorf("target path after the unpublish call: Stat returned %v, want fs.ErrNotExist", err)
	}
	wantCode(t, "publish", b.show(v, "pod", mounted("ext4"), false), codes.OK)
	if err := unix.Mount(b.path("pod"), b.path("pod"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unpublish of stacked mounts", b.hide(v, "pod"), codes.OK)
	if err := os.Remove(filepath.Join(b.path("disks"), v+".img")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unstage without its file", b.unstage(v), codes.OK)
	wantCode(t, "unstage of nothing", b.unstage(v), codes.OK)
}

// TestStaleDevice replaces the file of a staged disk with a new file of the same name. It proves
// that the driver never uses the loop device of the earlier file for the new file.
func TestStaleDevice(t *testing.T) {
	b := newNodeBench(t)
	v := b.stagedVolume("pvc-1")
	if err := os.WriteFile(b.path("pod/secret"), []byte("of the first"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.path("disks"), v+".img")
	if err := os.Rename(file, file+".old"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(gib); err != nil {
		t.Fatal(err)
	}
	f.Close()
	wantCode(t, "publish the new file", b.show(v, "pod-2", mounted("ext4"), false), codes.FailedPrecondition)
	_, err = b.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path("pod")})
	wantCode(t, "stats of the new file", err, codes.NotFound)
	if err := os.Rename(file+".old", file); err != nil {
		t.Fatal(err)
	}
	b.clear(v)
}

// TestRestagedWithAnotherFilesystem proves that the driver does not format a disk that already has
// a filesystem, even if a request asks for another filesystem type.
func TestRestagedWithAnotherFilesystem(t *testing.T) {
	b := newNodeBench(t)
	v := b.stagedVolume("pvc-1")
	b.clear(v)
	wantCode(t, "stage as xfs", b.stage(v, mounted("xfs")), codes.FailedPrecondition)
	wantCode(t, "stage with the existing filesystem", b.stage(v, mounted("ext4")), codes.OK)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestSocketMode proves that only the user of the driver's process may use the
// driver's socket.
func TestSocketMode(t *testing.T) {
	b := newBench(t)
	must(t)(b.ListVolumes(t.Context(), &csi.ListVolumesRequest{}))
	info, err := os.Stat(b.path("csi.sock"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		t.Errorf("socket is %v, %v; want mode 0600 and this process as owner", info, err)
	}
}
