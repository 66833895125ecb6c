package hollow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// Config is what a hypervisor needs.
type Config struct {
	// Cloud sees the instances of one project; each becomes a node. It needs
	// to read instances, instance types, zones and events.
	Cloud *client.Client
	// Kubeconfig is the file to reach the cluster with. Its user may list and
	// watch nodes, pods, services and endpointslices, create and patch nodes,
	// and patch nodes/status and pods/status.
	Kubeconfig string
	// Kubelet makes each machine answer where its kubelet would. It may be nil:
	// then nothing does.
	Kubelet KubeletTLS
}

// Validate says everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	switch {
	case c.Cloud == nil:
		errs = append(errs, errors.New("cloud is required"))
	case c.Cloud.URL == "" || c.Cloud.HTTP == nil:
		errs = append(errs, errors.New("cloud needs a URL and an HTTP client"))
	}
	if c.Kubeconfig == "" {
		errs = append(errs, errors.New("kubeconfig is required"))
	}
	return errors.Join(errs...)
}

// Run makes instances true as nodes until ctx ends. Neither the cloud nor the
// API server need be there when it starts, nor stay: it waits for both, and
// says so in log. When it ends, the machines' sockets close and their nodes
// are left as they are: the cloud's machines go on, unwatched.
func Run(ctx context.Context, log *slog.Logger, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	kube, err := kubeClient(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(withoutManagers))
	f := newFleet(log, cfg.Cloud)
	k, err := newKubelets(log, cfg.Cloud, kube, factory, f)
	if err != nil {
		return err
	}
	pods, err := newIPAM(log, kube, factory)
	if err != nil {
		return err
	}
	p, err := newProxy(log, factory, f, cfg.Kubelet)
	if err != nil {
		return err
	}

	factory.StartWithContext(ctx)
	defer factory.Shutdown() // waits for the informers
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx) })
	wg.Go(func() { k.run(ctx) })
	wg.Go(func() { pods.run(ctx) })
	wg.Go(func() { p.run(ctx) })
	wg.Wait()
	return nil
}

// kubeClient does not limit its own rate: who calls bounds how many calls run
// at once, and the API server has its own fairness.
func kubeClient(kubeconfig string) (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.QPS = -1
	cfg.UserAgent = "allinone-hollow"
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(cfg)
}

// withoutManagers drops from cached objects what nobody here reads.
func withoutManagers(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
