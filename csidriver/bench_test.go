package csidriver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// contender contains one implementation of a volume lifecycle, and the
// measurements of this implementation.
type contender struct {
	cycle     func(ctx context.Context, name string) error
	turns     int
	perSecond []float64 // rate of each turn after the warm-up
	took      []time.Duration
}

// runCycles runs n cycles. At most atOnce cycles run in parallel.
func (c *contender) runCycles(b *testing.B, n, atOnce int) {
	b.Helper()
	var next atomic.Int64
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	begin, turn := time.Now(), c.turns
	c.turns++ // each turn has its own number, which keeps the names of volumes unique
	for range atOnce {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				began := time.Now()
				if err := c.cycle(b.Context(), fmt.Sprintf("pvc-%d-%d", turn, i)); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	c.perSecond = append(c.perSecond, float64(n)/time.Since(begin).Seconds())
	c.took = append(c.took, took...)
}

// inTurns runs one turn of each contender in each iteration. A turn consists of
// n cycles. Before the first iteration, each contender runs a short turn that
// warms up the caches. The results do not contain these short turns. The
// contenders alternate, so that changes in the speed of the machine affect all
// contenders. A contender can leave unfinished work on the machine, and this
// work slows down the next contender. Therefore each iteration starts with a
// different contender.
func inTurns(b *testing.B, n, atOnce int, all ...*contender) {
	b.Helper()
	for _, c := range all {
		c.runCycles(b, atOnce, atOnce)
		c.perSecond, c.took = c.perSecond[:0:0], nil
	}
	for first := 0; b.Loop(); first++ {
		for i := range all {
			runtime.GC()
			all[(first+i)%len(all)].runCycles(b, n, atOnce)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// rate returns the median rate of all turns, in cycles per second.
func (c *contender) rate() float64 { return median(slices.Clone(c.perSecond)) }

// medianRatio divides, for each iteration, the rate of c by the rate of
// baseline. It returns the median of these ratios.
func (c *contender) medianRatio(baseline *contender) float64 {
	parts := make([]float64, len(c.perSecond))
	for i := range parts {
		parts[i] = c.perSecond[i] / baseline.perSecond[i]
	}
	return median(parts)
}

// p99 returns the 99th percentile of the cycle times, in milliseconds.
func (c *contender) p99() float64 {
	slices.Sort(c.took)
	return float64(c.took[len(c.took)*99/100].Milliseconds())
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// wholeCycle runs the lifecycle of a volume. It creates, attaches, formats,
// mounts and publishes the volume, and reads the usage of the volume. Then it
// undoes these steps.
func (b *bench) wholeCycle(ctx context.Context, name string) error {
	c := mounted("ext4")
	made, err := b.CreateVolume(ctx, b.request(name))
	if err != nil {
		return err
	}
	v, stage, pod := made.GetVolume().GetVolumeId(), b.path("stage-"+name), b.path("pod-"+name)
	if err := os.Mkdir(stage, 0o700); err != nil { // the kubelet also makes this folder
		return err
	}
	for _, call := range []func() error{
		func() error {
			_, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID), VolumeCapability: c})
			return err
		},
		func() error {
			_, err := b.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v, StagingTargetPath: stage, VolumeCapability: c})
			return err
		},
		func() error {
			_, err := b.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: v, StagingTargetPath: stage, TargetPath: pod, VolumeCapability: c})
			return err
		},
		func() error {
			_, err := b.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: pod})
			return err
		},
		func() error {
			_, err := b.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v, TargetPath: pod})
			return err
		},
		func() error {
			_, err := b.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v, StagingTargetPath: stage})
			return err
		},
		func() error { return os.Remove(stage) },
		func() error {
			_, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID)})
			return err
		},
	} {
		if err := call(); err != nil {
			return err
		}
	}
	_, err = b.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v})
	return err
}

// controllerCycle runs only the calls of a volume's lifecycle that the driver's
// controller handles.
func (b *bench) controllerCycle(ctx context.Context, name string) error {
	made, err := b.CreateVolume(ctx, b.request(name))
	if err != nil {
		return err
	}
	v := made.GetVolume().GetVolumeId()
	if _, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID), VolumeCapability: mounted("ext4")}); err != nil {
		return err
	}
	if _, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID)}); err != nil {
		return err
	}
	_, err = b.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v})
	return err
}

// referenceCycle does the same work as wholeCycle, but it uses only system
// calls and mkfs. It uses no cloud and no gRPC.
func referenceCycle(dir string) func(ctx context.Context, name string) error {
	return func(ctx context.Context, name string) error {
		file, stage, pod := filepath.Join(dir, name+".img"), filepath.Join(dir, "stage-"+name), filepath.Join(dir, "pod-"+name)
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := f.Truncate(gib); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		for _, at := range []string{stage, pod} {
			if err := os.Mkdir(at, 0o700); err != nil {
				return err
			}
		}
		l, err := machine.Attach(ctx, file, false, true)
		if err != nil {
			return err
		}
		if _, err := machine.EnsureFilesystem(ctx, l, file, machine.Ext4); err != nil {
			return err
		}
		if err := machine.MountDevice(l, stage, machine.Ext4, nil); err != nil {
			return err
		}
		if err := machine.Bind(stage, pod, nil); err != nil {
			return err
		}
		if _, err := machine.UsageOf(pod); err != nil {
			return err
		}
		for _, at := range []string{pod, stage} {
			if err := machine.UnmountAll(at); err != nil {
				return err
			}
			if err := os.Remove(at); err != nil {
				return err
			}
		}
		if err := l.Detach(); err != nil {
			return err
		}
		return os.Remove(file)
	}
}

// BenchmarkVolume compares the rate of wholeCycle with the rate of
// referenceCycle. The driver should reach at least 0.6 times the rate of the
// reference. The 99th percentile of the driver's cycle times should be at most
// 500 ms.
func BenchmarkVolume(b *testing.B) {
	if err := machine.Ready(); err != nil {
		b.Skipf("this machine cannot mount volumes: %v", err)
	}
	for _, atOnce := range []int{1, 16} {
		b.Run(fmt.Sprintf("at-once=%d", atOnce), func(b *testing.B) {
			reference := &contender{cycle: referenceCycle(b.TempDir())}
			driver := &contender{cycle: newBench(b).wholeCycle}
			inTurns(b, 60+6*atOnce, atOnce, reference, driver)
			b.ReportMetric(reference.rate(), "reference/s")
			b.ReportMetric(driver.rate(), "cycles/s")
			b.ReportMetric(driver.medianRatio(reference), "of-reference")
			b.ReportMetric(driver.p99(), "p99-ms")
		})
	}
}

// BenchmarkVolumeRecords measures the rate of controllerCycle. For comparison,
// it also runs controllerCycle with a fake cloud that stores nothing. The
// driver should reach 1,200 cycles per second. If the cloud already contains
// 1,000 volumes, the rate should be at most 10 % lower than in an empty cloud.
// docs/performance.md contains the measured rates and the number of commits per
// cycle.
func BenchmarkVolumeRecords(b *testing.B) {
	const otherVolumes, atOnce = 1000, 16
	limit := &contender{cycle: withoutStore(b).controllerCycle}
	empty := &contender{cycle: newBench(b).controllerCycle}
	full := newBench(b)
	for i := range otherVolumes {
		full.volume(fmt.Sprintf("old-%d", i))
	}
	among := &contender{cycle: full.controllerCycle}
	inTurns(b, 800, atOnce, limit, empty, among)
	b.ReportMetric(limit.rate(), "limit/s")
	b.ReportMetric(empty.rate(), "cycles/s")
	b.ReportMetric(empty.medianRatio(limit), "of-limit")
	b.ReportMetric(empty.p99(), "p99-ms")
	b.ReportMetric(among.rate(), "cycles/s-among-1000")
	b.ReportMetric(among.medianRatio(empty), "of-empty")
}

// withoutStore returns a bench with a fake cloud. The fake cloud answers each
// call at once and stores nothing, so no cloud with an HTTP API can be faster.
func withoutStore(b *testing.B) *bench {
	d := &bench{t: b, dir: b.TempDir(), vm: cloudsim.Instance{ID: "i-000001"}}
	reply := func(state cloudsim.DiskState, has ...cloudsim.Attachment) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var body cloudsim.CreateDisk
			_ = json.NewDecoder(r.Body).Decode(&body) // a deletion has no body
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(cloudsim.Disk{
				ID: "disk-000001", Meta: cloudsim.Meta{Name: "pvc", Labels: body.Labels}, Zone: "sim-1a", SizeGiB: 1, State: state, Attachments: has,
			})
		}
	}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/disks", reply(cloudsim.DiskAvailable))
	mux.Handle("POST /v1/disks/{id}/attach", reply(cloudsim.DiskInUse, cloudsim.Attachment{Instance: d.vm.ID, Device: "vdb", State: cloudsim.AttachmentAttached}))
	mux.Handle("POST /v1/disks/{id}/detach", reply(cloudsim.DiskAvailable))
	mux.Handle("DELETE /v1/disks/{id}", reply(cloudsim.DiskDeleted))
	ln, err := run.Socket(b.Context(), d.path("cloud.sock"))
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(mux)
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	b.Cleanup(srv.Close)
	d.cloud = &client.Client{URL: "unix://" + d.path("cloud.sock"), HTTP: &http.Client{}, Token: client.StaticToken("none")}
	t := &http.Transport{MaxIdleConnsPerHost: 64}
	client.Reach(t, d.cloud.URL)
	d.cloud.HTTP.Transport = t
	d.serve(NodeConfig{Instance: d.vm.ID, DisksDir: d.dir})
	return d
}
