package csidriver

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// bench contains a cloud and a driver. The cloud has a data plane and an
// instance, and the driver runs for this instance.
type bench struct {
	t     testing.TB
	cloud *client.Client
	dir   string
	vm    cloudsim.Instance
	size  string // size of the instances
	csi.ControllerClient
	csi.NodeClient
}

func newBench(t testing.TB, serveAs ...string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), size: "small"}
	var on []cloudtest.Option
	if _, many := t.(*testing.B); many {
		b.size, on = "large", append(on, cloudtest.OnSocket()) // a benchmark uses a Unix socket, like a driver on the machine of the cloud
	}
	files, log := filepath.Join(b.dir, "disks"), slog.New(slog.DiscardHandler)
	b.cloud = cloudtest.Start(t, append(on,
		cloudtest.WithConfig(func(c *engine.Config) { c.DiskData = true }),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			return disks.Run(engine.AsCloud(ctx), log, disks.Config{Dir: files}, e)
		}))...)
	b.vm = b.instance("node-1", "sim-1a")
	b.serve(NodeConfig{Instance: b.vm.ID, DisksDir: files}, serveAs...)
	return b
}

func (b *bench) serve(node NodeConfig, serveAs ...string) {
	t := b.t
	t.Helper()
	cfg := Default()
	cfg.Cloud, cfg.Endpoint = b.cloud, "unix://"+filepath.Join(b.dir, "csi.sock")
	cfg.Node, cfg.ServeAs = node, serveAs
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, slog.New(slog.DiscardHandler), cfg) }()
	conn, err := grpc.NewClient(cfg.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run of the stopped driver: got error %v, want none", err)
		}
	})
	b.ControllerClient, b.NodeClient = csi.NewControllerClient(conn), csi.NewNodeClient(conn)
}

// newNodeBench returns the result of newBench. It skips the test if this
// machine cannot mount volumes. At the end of the test, it fails the test if a
// loop device or a mount of the test's driver still exists.
func newNodeBench(t *testing.T, serveAs ...string) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: the test makes filesystems")
	}
	if err := machine.Ready(); err != nil {
		t.Skipf("this machine cannot mount volumes: %v", err)
	}
	b := newBench(t, serveAs...)
	t.Cleanup(func() {
		// Wait until no loop device exists. Udev opens each new device for a short time, and the
		// kernel cannot remove the device during this time.
		for deadline := time.Now().Add(time.Minute); len(b.loopFiles()) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("loop devices stay: %v", b.loopFiles())
				break
			}
		}
		if raw, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(raw), b.dir) {
			t.Errorf("mounts stay below %s (%v)", b.dir, err)
		}
	})
	return b
}

// secondDriver returns a bench with a second driver for the same cloud. The second driver serves
// another instance. Both drivers run on the machine of the test.
func (b *bench) secondDriver(name, size string) *bench {
	b.t.Helper()
	o := &bench{t: b.t, cloud: b.cloud, dir: b.path(name), size: size}
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(b.path("disks"), o.path("disks")); err != nil {
		b.t.Fatal(err)
	}
	o.vm = o.instance(name, "sim-1a")
	o.serve(NodeConfig{Instance: o.vm.ID, DisksDir: o.path("disks")})
	return o
}

// loopFiles lists the files of this bench that have a loop device.
func (b *bench) loopFiles() (files []string) {
	b.t.Helper()
	matches, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		b.t.Error(err)
	}
	for _, f := range matches {
		if raw, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(raw), b.dir) {
			files = append(files, strings.TrimSpace(string(raw)))
		}
	}
	return files
}

func (b *bench) instance(name, zone string) cloudsim.Instance {
	b.t.Helper()
	return must(b.t)(b.cloud.CreateInstance(b.t.Context(), cloudsim.CreateInstance{Name: name, Zone: zone, Type: b.size})).(cloudsim.Instance)
}

func must(t testing.TB) func(v any, err error) any {
	return func(v any, err error) any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantCode(t testing.TB, operation string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got code %v (%v), want %v", operation, got, err, want)
	}
}

func mounted(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
	}
}

func raw() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (b *bench) request(name string, change ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: []*csi.VolumeCapability{mounted("ext4")},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: topologyOf(DefaultName, "sim-1a")},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func (b *bench) volume(name string, change ...func(*csi.CreateVolumeRequest)) string {
	b.t.Helper()
	resp, err := b.CreateVolume(b.t.Context(), b.request(name, change...))
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.GetVolume().GetVolumeId()
}

func (b *bench) publish(volume string, c *csi.VolumeCapability) {
	b.t.Helper()
	must(b.t)(b.ControllerPublishVolume(b.t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: string(b.vm.ID), VolumeCapability: c}))
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) stage(volume string, c *csi.VolumeCapability) error {
	_, err := b.NodeStageVolume(b.t.Context(), &csi.NodeStageVolumeRequest{VolumeId: volume, StagingTargetPath: b.path("stage-" + volume), VolumeCapability: c})
	return err
}

func (b *bench) unstage(volume string) error {
	_, err := b.NodeUnstageVolume(b.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: b.path("stage-" + volume)})
	return err
}

func (b *bench) show(volume, target string, c *csi.VolumeCapability, readOnly bool) error {
	_, err := b.NodePublishVolume(b.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: b.path("stage-" + volume), TargetPath: b.path(target), VolumeCapability: c, Readonly: readOnly,
	})
	return err
}

func (b *bench) hide(volume, target string) error {
	_, err := b.NodeUnpublishVolume(b.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: b.path(target)})
	return err
}

// TestStopAtTheStart proves that serve returns no error if its context has
// ended before serve starts.
func TestStopAtTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		ln, err := run.Socket(t.Context(), filepath.Join(t.TempDir(), "csi.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := serve(ctx, grpc.NewServer(), ln); err != nil {
			t.Fatalf("serve returned %v after the stop, want no error", err)
		}
	}
}
