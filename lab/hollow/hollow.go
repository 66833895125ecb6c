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

// Config holds the settings of a hypervisor.
type Config struct {
	// Cloud is the client for one project. Each instance of the project becomes a node.
	// The client must be able to read instances, instance types, zones and events.
	Cloud *client.Client
	// Kubeconfig is the path of the cluster's kubeconfig. Its user needs these
	// permissions: list and watch nodes, pods, services and endpointslices; create and
	// patch nodes; patch nodes/status and pods/status.
	Kubeconfig string
	// Kubelet returns the TLS configuration of each machine's kubelet API. If Kubelet is nil,
	// the machines do not serve this API.
	Kubelet KubeletTLS
}

// Validate returns one error that lists all missing fields of c. Kubelet is optional.
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

// Run makes nodes from instances until ctx ends. The cloud and the API server may be
// unavailable at the start of Run or later. Run waits for them and logs the wait. When Run
// ends, it closes the machines' sockets. It does not change the Nodes, because the cloud's
// instances still run.
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

// kubeClient returns a client without a rate limit. The client needs no limit, because its callers
// limit their concurrent calls and the API server limits its clients.
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

// withoutManagers drops the managed fields from cached objects, because the package does not read
// them.
func withoutManagers(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
