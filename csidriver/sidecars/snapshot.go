package main

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions/volumegroupsnapshot/v1"
	common "github.com/kubernetes-csi/external-snapshotter/v8/pkg/common-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/group_snapshotter"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/metrics"
	sidecar "github.com/kubernetes-csi/external-snapshotter/v8/pkg/sidecar-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/snapshotter"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// snapshotKinds records which snapshot CustomResourceDefinitions the cluster
// has. An administrator of the cluster installs these definitions. Without
// these definitions, volumes work, but snapshots are not available.
type snapshotKinds struct{ snapshots, groups bool }

func (k *cluster) findSnapshotKinds(ctx context.Context) error {
	one := metav1.ListOptions{Limit: 1}
	_, err := k.snapshots.SnapshotV1().VolumeSnapshotContents().List(ctx, one)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	k.has.snapshots = err == nil
	_, err = k.snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents().List(ctx, one)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	k.has.groups = err == nil && k.has.snapshots
	klog.InfoS("Looked for the CRDs of snapshots in the API server", "snapshots", k.has.snapshots, "groups", k.has.groups)
	return nil
}

// noLimit keeps the complete UUID in the names that the csi-snapshotter generates.
const noLimit = -1

// commonSnapshots returns the snapshot-controller. The snapshot-controller
// binds VolumeSnapshots to VolumeSnapshotContents for all drivers of the
// cluster.
func (k *cluster) commonSnapshots(s *status) loop {
	count := metrics.NewMetricsManager()
	s.gather(count.GetRegistry())
	snapshots, groups := k.snapshot.Snapshot().V1(), k.snapshot.Groupsnapshot().V1()
	var group struct {
		snapshots groupinformers.VolumeGroupSnapshotInformer
		contents  groupinformers.VolumeGroupSnapshotContentInformer
		classes   groupinformers.VolumeGroupSnapshotClassInformer
	}
	if k.has.groups {
		group.snapshots, group.contents, group.classes = groups.VolumeGroupSnapshots(), groups.VolumeGroupSnapshotContents(), groups.VolumeGroupSnapshotClasses()
	}
	c := common.NewCSISnapshotCommonController(
		k.snapshots, k.kube, snapshots.VolumeSnapshots(), snapshots.VolumeSnapshotContents(), snapshots.VolumeSnapshotClasses(),
		group.snapshots, group.contents, group.classes,
		k.core.Core().V1().PersistentVolumeClaims(), k.core.Core().V1().PersistentVolumes(), nil,
		count, resync, k.limiter(), k.limiter(), k.limiter(), k.limiter(), false, true, k.has.groups,
	)
	return loop{"snapshot-controller", func(ctx context.Context, wg *sync.WaitGroup) { c.Run(workers, ctx.Done(), wg) }}
}

// takeSnapshots returns the csi-snapshotter. The csi-snapshotter calls
// CreateSnapshot for each new VolumeSnapshotContent.
func (d *driver) takeSnapshots() loop {
	snapshots, groups := d.snapshot.Snapshot().V1(), d.snapshot.Groupsnapshot().V1()
	var group struct {
		calls    group_snapshotter.GroupSnapshotter
		contents groupinformers.VolumeGroupSnapshotContentInformer
		classes  groupinformers.VolumeGroupSnapshotClassInformer
	}
	withGroups := d.has.groups && d.plugin[csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE]
	if withGroups {
		group.calls, group.contents, group.classes = group_snapshotter.NewGroupSnapshotter(d.conn), groups.VolumeGroupSnapshotContents(), groups.VolumeGroupSnapshotClasses()
	}
	c := sidecar.NewCSISnapshotSideCarController(
		d.snapshots, d.kube, d.name, snapshots.VolumeSnapshotContents(), snapshots.VolumeSnapshotClasses(), snapshotter.NewSnapshotter(d.conn), group.calls,
		d.timeout, resync, "snapshot", noLimit, "groupsnapshot", noLimit, true, d.limiter(), withGroups, group.contents, group.classes, d.limiter(),
	)
	return loop{"snapshotter", func(ctx context.Context, wg *sync.WaitGroup) {
		if !withGroups {
			c.Run(workers, ctx.Done(), wg)
			return
		}
		own := &sync.WaitGroup{}
		c.Run(workers, ctx.Done(), own)
		finish(own)
	}}
}

// lastCalls is the longest time that a stopping process waits for unfinished
// calls about snapshot groups. The next process repeats an interrupted call with
// the same group name.
const lastCalls = 5 * time.Second

// finish waits until all workers have ended, but not longer than lastCalls. Upstream's controller
// does not shut down its queue of groups, so an idle worker never ends. Without the limit, finish
// would therefore never return.
func finish(workers *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(lastCalls):
	}
}
