package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	snapshotinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

type config struct {
	sockets            []string
	kubeconfig         string
	http               string
	snapshotController bool
	capacityNamespace  string
	elect              bool
	electNamespace     string
	qps                float32
	timeout, retryMax  time.Duration
}

func defaultConfig() config {
	return config{
		sockets: []string{"/run/csi.sock"}, snapshotController: true, electNamespace: "kube-system",
		qps: 100, timeout: time.Minute, retryMax: 30 * time.Second,
	}
}

func (c config) validate() error {
	var errs []error
	if len(c.sockets) == 0 {
		errs = append(errs, errors.New("--csi-address is required"))
	}
	if c.timeout <= 0 || c.retryMax <= 0 || c.qps <= 0 {
		errs = append(errs, errors.New("--timeout, --retry-interval-max and --kube-api-qps must be greater than zero"))
	}
	return errors.Join(errs...)
}

// resync is the interval at which a controller processes all objects again.
const resync = 10 * time.Minute

// workers is the number of objects of one kind that a controller processes concurrently. The
// external-provisioner uses 10 times this number.
const workers = 10

// cluster contains the clients of the API server, and the informers that use these clients. All
// controllers of a driver share one set of informers. The snapshot-controller has its own set. Two
// drivers cannot share a set. Each provisioner adds an index with the same name to the informer of
// PersistentVolumeClaims, and an informer refuses a second index with this name.
type cluster struct {
	config
	rest      *rest.Config
	kube      kubernetes.Interface
	snapshots snapshotclient.Interface
	core      informers.SharedInformerFactory
	snapshot  snapshotinformers.SharedInformerFactory
	has       snapshotKinds
}

// loop is a controller. The function in the field run returns when ctx ends. At this time, a worker
// may still process a task. The caller therefore waits for the workers in the wait group.
type loop struct {
	name string
	run  func(ctx context.Context, workers *sync.WaitGroup)
}

func run(ctx context.Context, c config) error {
	if err := c.validate(); err != nil {
		return err
	}
	// All controllers read this feature gate. If the gate is on, each controller
	// waits for its workers before it ends.
	if err := utilfeature.DefaultMutableFeatureGate.Set("ReleaseLeaderElectionOnExit=true"); err != nil {
		return err
	}
	k, err := c.connect()
	if err != nil {
		return err
	}
	status := &status{}
	stopHTTP, err := status.serve(c.http)
	if err != nil {
		return err
	}
	defer stopHTTP()
	if !c.elect {
		return k.runControllers(ctx, status)
	}
	who, err := os.Hostname()
	if err != nil {
		return err
	}
	return runElected(ctx, k, fmt.Sprintf("%s_%d", who, os.Getpid()), func(ctx context.Context) error { return k.runControllers(ctx, status) })
}

// connect makes the clients. It does not call the API server.
func (c config) connect() (*cluster, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	conf.QPS, conf.Burst, conf.UserAgent = c.qps, int(2*c.qps), "csi-sidecars"
	core := rest.CopyConfig(conf)
	core.ContentType = runtime.ContentTypeProtobuf
	k := &cluster{config: c, rest: conf}
	if k.kube, err = kubernetes.NewForConfig(core); err != nil {
		return nil, err
	}
	if k.snapshots, err = snapshotclient.NewForConfig(conf); err != nil {
		return nil, err
	}
	return k.withInformers(), snapshotscheme.AddToScheme(scheme.Scheme) // so that events can refer to snapshots
}

// withInformers returns a copy of k with its own informers. The caller must
// start these informers.
func (k *cluster) withInformers() *cluster {
	own := *k
	own.core = informers.NewSharedInformerFactory(k.kube, resync)
	own.snapshot = snapshotinformers.NewSharedInformerFactory(k.snapshots, resync)
	return &own
}

// runControllers runs every controller of every driver until ctx ends, and
// waits until all started tasks have finished.
func (k *cluster) runControllers(ctx context.Context, s *status) error {
	if err := k.findSnapshotKinds(ctx); err != nil {
		return err
	}
	var all []loop
	watching := []*cluster{k}
	if k.snapshotController && k.has.snapshots {
		all = append(all, k.commonSnapshots(s))
	}
	for _, socket := range k.sockets {
		d, err := k.dial(ctx, socket, s)
		if err != nil {
			return fmt.Errorf("driver at %s: %w", socket, err)
		}
		defer d.close()
		loops, err := d.controllerLoops(ctx)
		if err != nil {
			return fmt.Errorf("driver %s: %w", d.name, err)
		}
		all, watching = append(all, loops...), append(watching, d.cluster)
	}
	for _, w := range watching {
		w.core.Start(ctx.Done())
		w.snapshot.Start(ctx.Done())
	}
	var running sync.WaitGroup
	for _, l := range all {
		running.Go(func() {
			var workers sync.WaitGroup
			l.run(ctx, &workers)
			workers.Wait()
			klog.InfoS("Stopped", "controller", l.name)
		})
		klog.InfoS("Started", "controller", l.name)
	}
	for _, w := range watching {
		w.core.WaitForCacheSync(ctx.Done())
		w.snapshot.WaitForCacheSync(ctx.Done())
	}
	s.setReady(len(all))
	running.Wait()
	if ctx.Err() == nil {
		return errors.New("all controllers stopped, although the process still runs")
	}
	return nil
}

func (c config) limiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, c.retryMax)
}
