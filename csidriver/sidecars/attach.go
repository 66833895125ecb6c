package main

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/external-attacher/v4/pkg/attacher"
	attach "github.com/kubernetes-csi/external-attacher/v4/pkg/controller"
	"k8s.io/klog/v2"
)

// reconcileEvery is the interval at which the attacher compares its attachments
// with the driver's list of volumes.
const reconcileEvery = time.Minute

// attach returns the external-attacher. The external-attacher calls
// ControllerPublishVolume for each VolumeAttachment. For a driver that cannot
// attach, it marks VolumeAttachments as attached and does not call the driver.
func (d *driver) attach() loop {
	lists := d.can(csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES) && d.can(csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
	handler := attach.NewTrivialHandler(d.kube)
	if d.can(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME) {
		timeout := d.timeout
		handler = attach.NewCSIHandler(
			d.kube, d.name, attacher.NewAttacher(d.conn), attacher.NewVolumeLister(d.conn, 0),
			d.core.Core().V1().PersistentVolumes().Lister(), d.core.Storage().V1().CSINodes().Lister(), d.core.Storage().V1().VolumeAttachments().Lister(),
			&timeout, d.can(csi.ControllerServiceCapability_RPC_PUBLISH_READONLY), d.can(csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
			d.translator, "",
		)
	}
	c := attach.NewCSIAttachController(
		klog.Background(), d.kube, d.name, handler, d.core.Storage().V1().VolumeAttachments(), d.core.Core().V1().PersistentVolumes(),
		d.limiter(), d.limiter(), lists, reconcileEvery,
	)
	return loop{"attacher", func(ctx context.Context, wg *sync.WaitGroup) { c.Run(ctx, workers, wg) }}
}
