package csidriver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// makeUnhealthy makes the data plane report a disk as unhealthy. If lost is
// true, it removes the disk's file. Otherwise it replaces the file by a folder.
func (b *bench) makeUnhealthy(v string, lost bool) {
	b.t.Helper()
	b.awaitDisk(cloudsim.DiskID(v), func(d cloudsim.Disk) bool { return d.Status.SizeGiB > 0 }) // wait for the first report about the file: before this report, the data plane would make the file again
	file := filepath.Join(b.path("disks"), v+".img")
	err := os.Remove(file)
	if !lost {
		err = errors.Join(err, os.Mkdir(file, 0o700))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	must(b.t)(b.cloud.ResizeDisk(b.t.Context(), cloudsim.DiskID(v), cloudsim.ResizeDisk{SizeGiB: 2})) // after a resize, the data plane checks the file again
	b.awaitDisk(cloudsim.DiskID(v), func(d cloudsim.Disk) bool { return d.Status.Error != "" && d.Status.Lost == lost })
}

// TestVolumeHealth proves that the controller and the node return the data
// plane's report as the health of a volume. ControllerListVolumeHealth returns
// the unhealthy volumes in pages.
func TestVolumeHealth(t *testing.T) {
	b := newBench(t)
	want := map[string]csi.VolumeHealthErrorType{}
	var well string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		v := b.volume("pvc-" + name)
		switch name {
		case "b", "e":
			b.makeUnhealthy(v, true)
			want[v] = csi.VolumeHealthErrorType_DATA_LOSS
		case "d":
			b.makeUnhealthy(v, false)
			want[v] = csi.VolumeHealthErrorType_DEGRADED
		default:
			well = v
		}
	}
	is := func(h *csi.VolumeHealth, v string) {
		t.Helper()
		all := h.GetHealthStatuses()
		if len(all) != 1 || h.GetVolumeId() != v || all[0].GetStatus() != want[v] || all[0].GetReason() == "" || all[0].GetMessage() == "" {
			t.Errorf("health of %s: got %v, want %v", v, h, want[v])
		}
	}
	for v := range want {
		is(must(t)(b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: v})).(*csi.ControllerGetVolumeHealthResponse).GetVolumeHealth(), v)
		is(must(t)(b.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v})).(*csi.NodeGetVolumeHealthResponse).GetVolumeHealth(), v)
	}
	if h := must(t)(b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: well})).(*csi.ControllerGetVolumeHealthResponse); len(h.GetVolumeHealth().GetHealthStatuses()) != 0 {
		t.Errorf("health of a healthy volume: got %v, want no entry", h)
	}
	_, err := b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: "disk-00ffff"})
	wantCode(t, "health of an unknown volume", err, codes.NotFound)

	seen, pages := map[string]bool{}, 0
	for token := ""; pages == 0 || token != ""; pages++ {
		l := must(t)(b.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{MaxEntries: 2, StartingToken: token})).(*csi.ControllerListVolumeHealthResponse)
		for _, h := range l.GetEntries() {
			is(h, h.GetVolumeId())
			seen[h.GetVolumeId()] = true
		}
		token = l.GetNextToken()
	}
	if len(seen) != len(want) || pages != 3 {
		t.Errorf("got %d pages with %v, want 3 pages with %v", pages, seen, want)
	}
	_, err = b.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{StartingToken: "x"})
	wantCode(t, "invalid starting token", err, codes.Aborted)
}

// TestStorageHealth starts a driver in a new process without root privileges, so this driver cannot
// mount volumes. The test proves that NodeGetStorageHealth reports the missing privileges, and that
// Probe returns an error. The function newBench starts another driver in the test's own process. If
// this process can mount volumes, NodeGetStorageHealth of that driver must report no problem.
func TestStorageHealth(t *testing.T) {
	b := newBench(t)
	if machine.Ready() == nil {
		all := must(t)(b.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})).(*csi.NodeGetStorageHealthResponse).GetBackendHealth()
		if len(all) != 0 {
			t.Errorf("health of a machine that can mount: got %v, want no entry", all)
		}
	}
	v := &victim{bench: b, socket: b.path("user.sock")}
	v.as = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
	}
	v.start()
	defer v.kill()
	conn := dial(t, v.socket)
	all := must(t)(csi.NewNodeClient(conn).NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})).(*csi.NodeGetStorageHealthResponse).GetBackendHealth()
	if len(all) != 1 || all[0].GetStatus() != csi.StorageHealthErrorType_STORAGE_UNREACHABLE || !strings.Contains(all[0].GetMessage(), "root") {
		t.Errorf("health without root privileges: got %v, want one entry about root", all)
	}
	_, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, "probe without root privileges", err, codes.FailedPrecondition)
}
