package csidriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// TestMain runs the tests or one of two other programs. The program "driver" is
// a driver that some tests kill. The program "swapper" replaces files of a
// volume by links (see swapLinks). os.Args[0] selects the program.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "driver":
		fmt.Fprintln(os.Stderr, testDriver(os.Args[1:]))
		os.Exit(1)
	case "swapper":
		if err := swapLinks(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testDriver serves CSI calls until a test kills its process. The arguments are
// SOCKET URL TOKEN INSTANCE DISKS.
func testDriver(args []string) error {
	cfg := Default()
	cfg.Endpoint, cfg.Cloud = "unix://"+args[0], &client.Client{
		URL: args[1], Token: client.StaticToken(args[2]), Project: "default", HTTP: &http.Client{Timeout: time.Minute}, UserAgent: "driver",
	}
	cfg.Node = NodeConfig{Instance: cloudsim.InstanceID(args[3]), DisksDir: args[4]}
	return Run(context.Background(), slog.New(slog.DiscardHandler), cfg)
}

// victim is a driver that runs in a separate process.
type victim struct {
	*bench
	socket string
	as     *syscall.SysProcAttr // nil for the same attributes as this process
	cmd    *exec.Cmd
}

func (v *victim) start() {
	v.t.Helper()
	self, err := os.Executable()
	if err != nil {
		v.t.Fatal(err)
	}
	token, err := v.cloud.Token()
	if err != nil {
		v.t.Fatal(err)
	}
	v.cmd = &exec.Cmd{Path: self, Args: []string{"driver", v.socket, v.cloud.URL, token, string(v.vm.ID), v.path("disks")}, Env: os.Environ(), Stderr: os.Stderr, SysProcAttr: v.as}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// cycle returns the calls of a volume's lifecycle. A test can repeat each call. For XFS, the calls
// also grow the disk of the unmounted volume, and then stage and unstage the volume again. The
// staging call first mounts the filesystem and then grows it to the size of the disk, because XFS
// can grow only while it is mounted. If the test kills the driver between these two steps, the
// repeated call must still grow the filesystem.
func (v *victim) cycle(conn grpc.ClientConnInterface, name, fsType string) []func(ctx context.Context, volume *string) error {
	control, node := csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	c := mounted(fsType)
	grow := &csi.CapacityRange{RequiredBytes: 2 * gib}
	path, pod := v.path("stage-"+name), v.path("pod-"+name)
	stage := func(ctx context.Context, id *string) error {
		_, err := node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: *id, StagingTargetPath: path, VolumeCapability: c})
		return err
	}
	unstage := func(ctx context.Context, id *string) error {
		_, err := node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: *id, StagingTargetPath: path})
		return err
	}
	calls := []func(context.Context, *string) error{
		func(ctx context.Context, id *string) error {
			resp, err := control.CreateVolume(ctx, v.request(name))
			*id = resp.GetVolume().GetVolumeId()
			return err
		},
		func(ctx context.Context, id *string) error {
			_, err := control.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: *id, NodeId: string(v.vm.ID), VolumeCapability: c})
			return err
		},
		stage,
		func(ctx context.Context, id *string) error {
			_, err := node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: *id, StagingTargetPath: path, TargetPath: pod, VolumeCapability: c})
			return err
		},
		func(ctx context.Context, id *string) error {
			_, err := control.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: *id, CapacityRange: grow})
			return err
		},
		func(ctx context.Context, id *string) error {
			_, err := node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: *id, VolumePath: pod, CapacityRange: grow})
			if status.Code(err) == codes.FailedPrecondition {
				return nil // a driver that may not grow a mounted filesystem grows the filesystem at the next staging
			}
			return err
		},
		func(ctx context.Context, id *string) error {
			_, err := control.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap-of-" + name, SourceVolumeId: *id})
			return err
		},
		func(ctx context.Context, id *string) error {
			_, err := node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: *id, TargetPath: pod})
			return err
		},
		unstage,
		func(ctx context.Context, id *string) error {
			_, err := control.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: *id, NodeId: string(v.vm.ID)})
			return err
		},
		func(ctx context.Context, id *string) error {
			_, err := control.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: *id})
			return err
		},
	}
	if fsType != machine.XFS {
		return calls
	}
	growMore := func(ctx context.Context, id *string) error {
		_, err := control.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: *id, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 * gib}})
		return err
	}
	return slices.Insert(calls, 9, growMore, stage, unstage)
}

// TestKilledAtEveryStep kills the driver in each step of a volume's lifecycle,
// restarts the driver, and repeats the call as Kubernetes does. The test proves
// that the kills do not change the result, and leave no additional volume,
// attachment, device or mount.
func TestKilledAtEveryStep(t *testing.T) {
	b := newNodeBench(t)
	v := &victim{bench: b, socket: b.path("victim.sock")}
	v.start()
	defer func() { v.kill() }()
	conn := dial(t, v.socket)
	n := 0
	for _, fsType := range machine.Filesystems() {
		for step := range v.cycle(conn, "x", fsType) {
			for _, after := range []time.Duration{0, 2 * time.Millisecond, 6 * time.Millisecond, 15 * time.Millisecond, 40 * time.Millisecond} {
				n++
				v.killAt(conn, fmt.Sprintf("pvc-%d", n), fsType, step, after)
			}
		}
	}
	l := must(t)(b.cloud.ListDisks(t.Context(), cloudsim.ListOptions{})).(cloudsim.List[cloudsim.Disk])
	if len(l.Items) > 0 {
		t.Errorf("disks stay: %v", l.Items)
	}
	snapshots := must(t)(b.cloud.ListSnapshots(t.Context(), cloudsim.ListOptions{Limit: 500})).(cloudsim.List[cloudsim.Snapshot])
	if len(snapshots.Items) != n {
		t.Errorf("got %d snapshots, want %d", len(snapshots.Items), n)
	}
}

// killAt runs the lifecycle of a volume. It kills the driver in the step with
// the index stepIndex, after the given delay.
func (v *victim) killAt(conn grpc.ClientConnInterface, name, fsType string, stepIndex int, delay time.Duration) {
	v.t.Helper()
	var id string
	for i, call := range v.cycle(conn, name, fsType) {
		if i == stepIndex {
			ctx, cancel := context.WithTimeout(v.t.Context(), 10*time.Second)
			broken := make(chan error, 1)
			go func() { ignored := id; broken <- call(ctx, &ignored) }()
			time.Sleep(delay) // the kill may come at any point of the call
			v.kill()
			<-broken
			cancel()
			v.start()
		}
		if err := v.insist(call, &id); err != nil {
			v.t.Fatalf("%s, driver killed %v after the begin of step %d: step %d returned %v", fsType, delay, stepIndex, i, err)
		}
		if i == 2 || i == 3 {
			v.checkCounts(id, i-1)
		}
		if i == 10 && fsType == machine.XFS { // staged again
			if size := v.total(id, "stage-"+name); size < 3*gib {
				v.t.Errorf("%s, driver killed %v after the begin of step %d: got a filesystem of %d bytes, want about 4 GiB", fsType, delay, stepIndex, size)
			}
		}
	}
}

// insist repeats a call while the error code asks the caller to retry, but
// stops after a minute.
func (v *victim) insist(call func(context.Context, *string) error, id *string) error {
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(v.t.Context(), 30*time.Second)
		err = call(ctx, id)
		cancel()
		switch status.Code(err) {
		case codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			continue
		}
		return err
	}
	return errors.Join(errors.New("the call did not succeed within a minute"), err)
}

// checkCounts checks that a volume has one attachment, one device and the
// given number of mounts.
func (v *victim) checkCounts(id string, mounts int) {
	v.t.Helper()
	d := must(v.t)(v.cloud.GetDisk(v.t.Context(), cloudsim.DiskID(id))).(cloudsim.Disk)
	if len(d.Attachments) != 1 {
		v.t.Errorf("%s has the attachments %v, want one", id, d.Attachments)
	}
	devices := 0
	backingFiles, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range backingFiles {
		if raw, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(raw), v.path("disks/"+id)) {
			devices++
		}
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if got := strings.Count(string(raw), " "+v.dir+"/"); err != nil || got != mounts || devices != 1 {
		v.t.Errorf("%s has %d devices and %d mounts (%v), want 1 and %d", id, devices, got, err, mounts)
	}
}
