package ccm

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/config"
	"k8s.io/controller-manager/controller"
	"k8s.io/controller-manager/pkg/healthz"
)

// The controllers of ours, beside upstream's. Their names are for --controllers
// and for leader migration; like upstream's they are stable.
const (
	ServiceRepairController = "service-lb-repair-controller"
	ServiceOrphanController = "service-lb-orphan-controller"
	// ServiceEndpointController has load balancers follow pods.
	ServiceEndpointController = "service-lb-endpoint-controller"
	NodeLabelController       = "cloud-node-label-controller"
	NodeIPAMController        = "cloud-node-ipam-controller"
	// CloudHealthController does nothing but have a health check, of the cloud,
	// which /healthz shows as cloud-health-controller. Upstream's checks are
	// all well while no call to the cloud is answered.
	CloudHealthController = "cloud-health-controller"
)

// controllers are upstream's and ours. Upstream's map is a global that its own
// sample edits, so this is a copy. The one for routes is left in: it says itself
// whether it has something to do.
func controllers() map[string]app.ControllerInitFuncConstructor {
	all := maps.Clone(app.DefaultInitFuncConstructors)
	for name, c := range map[string]struct {
		client string // whose account; upstream's have the rights already
		make   makeController
	}{
		ServiceRepairController:   {"service-controller", makeRepairer},
		ServiceOrphanController:   {"service-controller", makeSweeper},
		ServiceEndpointController: {"service-controller", makePodFollower},
		NodeLabelController:       {"node-controller", makeLabeler},
		NodeIPAMController:        {"node-controller", makeAllocator},
	} {
		all[name] = app.ControllerInitFuncConstructor{
			InitContext: app.ControllerInitContext{ClientName: c.client},
			Constructor: c.make.constructor(name),
		}
	}
	all[CloudHealthController] = app.ControllerInitFuncConstructor{Constructor: cloudHealth}
	return all
}

// migrating completes the leader migration (KEP-2436) that was asked for without
// a configuration: upstream's default names the controllers as they were called
// once, so two of the three would run under both locks' holders.
func migrating(c *config.LeaderMigrationConfiguration) {
	for _, name := range []string{names.ServiceLBController, names.NodeRouteController, names.CloudNodeLifecycleController, ServiceRepairController, ServiceOrphanController, ServiceEndpointController} {
		if !slices.ContainsFunc(c.ControllerLeaders, func(l config.ControllerLeaderConfiguration) bool { return l.Name == name }) {
			c.ControllerLeaders = append(c.ControllerLeaders, config.ControllerLeaderConfiguration{Name: name, Component: "*"})
		}
	}
}

// cloudHealth is a controller that only has a health check.
func cloudHealth(_ app.ControllerInitContext, _ *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
	return func(context.Context, controllermanager.ControllerContext) (controller.Interface, bool, error) {
		return health{cloud.(*Provider)}, true, nil
	}
}

type health struct{ p *Provider }

// Name is the controller's.
func (health) Name() string { return CloudHealthController }

// HealthChecker says whether the cloud can be watched.
func (h health) HealthChecker() healthz.UnnamedHealthChecker { return h }

// Check is the health check itself.
func (h health) Check(*http.Request) error { return h.p.mirror.health() }

// makeController makes a controller of ours before the informers start, and
// returns what runs it until its context ends; nil if it is not wanted.
type makeController func(p *Provider, kube kubernetes.Interface, c *appconfig.CompletedConfig) (run func(context.Context), err error)

func (m makeController) constructor(name string) app.InitFuncConstructor {
	return func(ic app.ControllerInitContext, c *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
		return func(ctx context.Context, cc controllermanager.ControllerContext) (controller.Interface, bool, error) {
			p := cloud.(*Provider)
			kube, err := c.ClientBuilder.Client(ic.ClientName)
			if err != nil {
				return nil, false, err
			}
			run, err := m(p, kube, c)
			if err != nil || run == nil {
				return nil, false, err
			}
			p.during(ctx, func(ctx context.Context) {
				cc.ControllerManagerMetrics.ControllerStarted(name)
				defer cc.ControllerManagerMetrics.ControllerStopped(name)
				run(ctx)
			})
			return nil, true, nil
		}
	}
}

func makeRepairer(p *Provider, kube kubernetes.Interface, c *appconfig.CompletedConfig) (func(context.Context), error) {
	core := c.SharedInformers.Core().V1()
	r, err := newRepairer(p, kube, core.Services(), core.Nodes(), c.ComponentConfig.KubeCloudShared.ClusterName)
	if err != nil {
		return nil, err
	}
	return r.run, nil
}

func makePodFollower(p *Provider, _ kubernetes.Interface, c *appconfig.CompletedConfig) (func(context.Context), error) {
	core := c.SharedInformers.Core().V1()
	f, err := newPodFollower(p, core.Services(), core.Nodes(), c.SharedInformers.Discovery().V1().EndpointSlices(), c.ComponentConfig.KubeCloudShared.ClusterName)
	if err != nil {
		return nil, err
	}
	return f.run, nil
}

func makeSweeper(p *Provider, kube kubernetes.Interface, c *appconfig.CompletedConfig) (func(context.Context), error) {
	return newSweeper(p, kube, c.ComponentConfig.KubeCloudShared.ClusterName).run, nil
}

func makeLabeler(p *Provider, kube kubernetes.Interface, c *appconfig.CompletedConfig) (func(context.Context), error) {
	return (&labeler{p.log, p, kube, c.SharedInformers.Core().V1().Nodes().Lister()}).run, nil
}

// makeAllocator makes none unless upstream's two flags ask for it.
func makeAllocator(p *Provider, kube kubernetes.Interface, c *appconfig.CompletedConfig) (func(context.Context), error) {
	shared := c.ComponentConfig.KubeCloudShared
	if !shared.AllocateNodeCIDRs || shared.CIDRAllocatorType != CloudAllocator {
		return nil, nil
	}
	routes := ""
	if shared.ConfigureCloudRoutes && controllermanager.IsControllerEnabled(names.NodeRouteController, app.ControllersDisabledByDefault, c.ComponentConfig.Generic.Controllers) {
		routes = shared.ClusterName
	}
	a, err := newAllocator(p, kube, c.SharedInformers.Core().V1().Nodes(), shared.ClusterCIDR, routes)
	if err != nil {
		return nil, err
	}
	return a.run, nil
}
