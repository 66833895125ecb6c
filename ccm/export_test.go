package ccm

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Hurry makes p hand work in progress to the framework almost at once.
func (p *Provider) Hurry() *Provider {
	p.balancers.patience = wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}
	p.balancers.unreported = 0
	return p
}

var (
	Measure   = measure
	Operation = operation
)

// RunRepairer runs a repairer that leaves a Service alone for settle only.
func (p *Provider) RunRepairer(ctx context.Context, kube kubernetes.Interface, services coreinformers.ServiceInformer, nodes coreinformers.NodeInformer, cluster string, settle time.Duration) (run func(), err error) {
	r, err := newRepairer(p, kube, services, nodes, cluster)
	if err != nil {
		return nil, err
	}
	r.settle = settle
	return func() { r.run(ctx) }, nil
}

// Sweeper returns what sweeps once.
func (p *Provider) Sweeper(kube kubernetes.Interface, cluster string) func(context.Context) error {
	return newSweeper(p, kube, cluster).sweep
}

// Mirrored reports whether the mirror may be believed.
func (p *Provider) Mirrored() bool { return p.mirror.believed() }

// Drift is what a repairer would repair.
func (p *Provider) Drift(ctx context.Context, cluster string, svc *v1.Service, nodes ...*v1.Node) (string, error) {
	return (&repairer{p: p, cluster: cluster}).drift(ctx, svc, nodes)
}
