package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity/topology"
	provision "github.com/kubernetes-csi/external-provisioner/v6/pkg/controller"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/util/workqueue"
	lib "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// managedBy is the label value that marks the CSIStorageCapacity objects of
// this process.
const managedBy = "external-provisioner"

// capacityEvery is the interval at which the controller asks a driver for its
// capacity. The controller also asks the driver when a volume has changed.
const capacityEvery = time.Minute

// provision returns the external-provisioner and its helper controllers. The
// external-provisioner makes a volume for each claim, chooses the volume's
// topology segment, and deletes released volumes. If the configuration has a
// capacity namespace, a helper controller publishes the free capacity of each
// segment.
func (d *driver) provision(ctx context.Context) ([]loop, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	claims := d.core.Core().V1().PersistentVolumeClaims()
	var attachments storagelisters.VolumeAttachmentLister
	if d.can(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME) {
		attachments = d.core.Storage().V1().VolumeAttachments().Lister()
	}
	var places struct {
		csiNodes storagelisters.CSINodeLister
		chosen   *provision.InMemoryStore
	}
	nodes := d.core.Core().V1().Nodes()
	if provision.SupportsTopology(d.plugin) {
		places.csiNodes, places.chosen = d.core.Storage().V1().CSINodes().Lister(), provision.NewInMemoryStore()
	}
	var p lib.Provisioner = provision.NewCSIProvisioner(
		d.kube, d.timeout, fmt.Sprintf("%s-%d-%s", host, os.Getpid(), d.name), "pvc", noLimit, d.conn, d.snapshots, d.name,
		d.plugin, d.controller, d.legacy, false, true, d.translator,
		d.core.Storage().V1().StorageClasses().Lister(), places.csiNodes, nodes.Lister(), claims.Lister(), attachments, nil,
		true, "ext4", nil, d.can(csi.ControllerServiceCapability_RPC_PUBLISH_READONLY), true, places.chosen,
	)
	var all []loop
	if d.capacityNamespace != "" && d.can(csi.ControllerServiceCapability_RPC_GET_CAPACITY) {
		room, loops := d.capacity()
		p, all = capacity.NewProvisionWrapper(p, room), loops
	}
	options := []func(*lib.ProvisionController) error{
		lib.LeaderElection(false), lib.FailedProvisionThreshold(0), lib.FailedDeleteThreshold(0),
		lib.RateLimiter(d.limiter()), lib.Threadiness(10 * workers), lib.RetryIntervalMax(d.retryMax),
		lib.CreateProvisionedPVLimiter(workqueue.DefaultTypedControllerRateLimiter[string]()),
		lib.ClaimsInformer(claims.Informer()), lib.AddFinalizer(true),
	}
	if d.legacy != "" {
		options = append(options, lib.AdditionalProvisionerNames([]string{d.legacy}))
	}
	c := lib.NewProvisionController(ctx, d.kube, d.name, p, options...)
	protect := provision.NewCloningProtectionController(d.kube, claims.Lister(), claims.Informer(),
		workqueue.NewTypedRateLimitingQueueWithConfig(d.limiter(), workqueue.TypedRateLimitingQueueConfig[string]{Name: "claims-" + d.name}), d.controller)
	all = append(all, loop{"provisioner", func(ctx context.Context, wg *sync.WaitGroup) {
		if !d.awaitSynced(ctx) { // the provisioner makes its decisions from the caches
			return
		}
		c.ControllerWaitGroup(wg)
		c.Run(ctx)
	}})
	if protect != nil {
		all = append(all, loop{"protection of clone sources", func(ctx context.Context, wg *sync.WaitGroup) { protect.Run(ctx, 1, wg) }})
	}
	return all, nil
}

// awaitSynced waits until every informer has its first complete list. If ctx
// ends first, it returns false.
func (k *cluster) awaitSynced(ctx context.Context) bool {
	for _, ok := range k.core.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return false
		}
	}
	return true
}

// capacity returns the controller that publishes the free capacity of each
// topology segment for each StorageClass (KEP-1472). The scheduler reads this
// data.
func (d *driver) capacity() (*capacity.Controller, []loop) {
	places := topology.NewNodeTopology(d.name, d.kube, d.core.Core().V1().Nodes(), d.core.Storage().V1().CSINodes(),
		workqueue.NewTypedRateLimitingQueueWithConfig(d.limiter(), workqueue.TypedRateLimitingQueueConfig[string]{Name: "topology-" + d.name}))
	own := informers.NewSharedInformerFactoryWithOptions(d.kube, resync, informers.WithNamespace(d.capacityNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{capacity.DriverNameLabel: d.name, capacity.ManagedByLabel: managedBy}.String()
		}))
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[capacity.QueueKey](time.Second, d.retryMax),
		workqueue.TypedRateLimitingQueueConfig[capacity.QueueKey]{Name: "capacity-" + strings.ReplaceAll(d.name, ".", "-")})
	c := capacity.NewCentralCapacityController(
		csi.NewControllerClient(d.conn), d.name, capacity.NewV1ClientFactory(d.kube), queue, nil, managedBy, d.capacityNamespace,
		places, d.core.Storage().V1().StorageClasses(), own.Storage().V1().CSIStorageCapacities(), capacityEvery, false, d.timeout,
	)
	return c, []loop{
		{"topology", func(ctx context.Context, _ *sync.WaitGroup) { places.RunWorker(ctx) }},
		{"capacity", func(ctx context.Context, wg *sync.WaitGroup) {
			own.Start(ctx.Done())
			c.Run(ctx, 1, wg)
		}},
	}
}
