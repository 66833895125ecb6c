package fake

import (
	"context"
	"net"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	_ "k8s.io/controller-manager/pkg/features/register" // the feature gates of upstream's controllers

	"github.com/cloudsim-dev/allinone/conform"
)

// monitorPeriod is the time between two checks of Nodes that are not Ready, and of routes.
const monitorPeriod = 300 * time.Millisecond

// Manager is a CCM in this process: upstream's controllers with the provider of Cloud. It
// implements conform.Subject.
type Manager struct {
	Kube  *rest.Config
	Cloud *Cloud
	Bug   Bug // "" for a CCM that passes all checks

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

var _ conform.Subject = (*Manager)(nil)

// Start implements conform.Subject.
func (m *Manager) Start(ctx context.Context) error {
	config := rest.CopyConfig(m.Kube)
	config.QPS, config.Burst = -1, 0
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	p := &provider{cloud: m.Cloud, bug: m.Bug}
	_, pods, err := net.ParseCIDR(ClusterCIDR)
	if err != nil {
		return err
	}
	f := informers.NewSharedInformerFactory(kube, 0)
	nodes, services := f.Core().V1().Nodes(), f.Core().V1().Services()
	initial, err := node.NewCloudNodeController(nodes, kube, p, monitorPeriod, 4, 1)
	if err != nil {
		return err
	}
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, kube, p, monitorPeriod)
	if err != nil {
		return err
	}
	balancers, err := service.New(p, kube, services, nodes, "conform", utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	routing, err := route.New(routes{p}, kube, nodes, "conform", []*net.IPNet{pods})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	metrics := controllersmetrics.NewControllerManagerMetrics("fake")
	f.Start(ctx.Done())
	m.ended.Go(func() { initial.Run(ctx.Done(), metrics) })
	m.ended.Go(func() { lifecycle.Run(ctx, metrics) })
	m.ended.Go(func() { balancers.Run(ctx, 1, metrics) })
	m.ended.Go(func() { routing.Run(ctx, monitorPeriod, metrics) })
	if m.Bug == EveryClass {
		m.ended.Go(func() { claimAll(ctx, kube) })
	}
	return nil
}

// claimAll adds a finalizer to all Services with a load balancer class.
func claimAll(ctx context.Context, kube kubernetes.Interface) {
	for ctx.Err() == nil {
		all, err := kube.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, s := range all.Items {
				if s.Spec.LoadBalancerClass != nil && s.Spec.Type == v1.ServiceTypeLoadBalancer {
					_, _ = kube.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/claimed"]}}`), metav1.PatchOptions{})
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(monitorPeriod):
		}
	}
}

// Kill implements conform.Subject.
func (m *Manager) Kill() error {
	if m.cancel != nil {
		m.cancel()
		m.ended.Wait()
		m.cancel = nil
	}
	return nil
}

// Ended implements conform.Subject.
func (m *Manager) Ended() error { return nil }
