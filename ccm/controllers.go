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

// These are the names of the additional controllers, for --controllers and for
// leader migration. Users put these names into configurations, so do not change
// the names.
const (
	ServiceRepairController = "service-lb-repair-controller"
	ServiceOrphanController = "service-lb-orphan-controller"
	// ServiceEndpointController is the name of the controller that updates load balancers when pods
	// change.
	ServiceEndpointController = "service-lb-endpoint-controller"
	NodeLabelController       = "cloud-node-label-controller"
	NodeIPAMController        = "cloud-node-ipam-controller"
	// CloudHealthController only adds a health check of the cloud. The
	// endpoint /healthz lists this health check as cloud-health-controller.
	// The check is necessary, because upstream's own checks succeed even if
	// the cloud answers no call.
	CloudHealthController = "cloud-health-controller"
)

// controllerMap returns upstream's controllers and the controllers of this
// package. It clones upstream's map, because that map is a global variable.
// The result always contains upstream's route controller. This controller
// starts only if the flags enable routes.
func controllerMap() map[string]app.ControllerInitFuncConstructor {
	all := maps.Clone(app.DefaultInitFuncConstructors)
	for name, c := range map[string]struct {
		client string // name of a Kubernetes client of upstream; the client already has the necessary permissions
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

// completeMigration adds names of controllers to the default configuration of a leader migration
// (KEP-2436). The caller calls this function only if the user gave no configuration. Upstream's
// default configuration has outdated names for two of its three controllers. Without the current
// names, these two controllers would run in kube-controller-manager and in the CCM at the same
// time. completeMigration also adds this package's controllers for Services. These controllers must
// run in the same process as upstream's service controller. Otherwise two processes could change
// a load balancer at the same time.
func completeMigration(c *config.LeaderMigrationConfiguration) {
	for _, name := range []string{names.ServiceLBController, names.NodeRouteController, names.CloudNodeLifecycleController, ServiceRepairController, ServiceOrphanController, ServiceEndpointController} {
		if !slices.ContainsFunc(c.ControllerLeaders, func(l config.ControllerLeaderConfiguration) bool { return l.Name == name }) {
			c.ControllerLeaders = append(c.ControllerLeaders, config.ControllerLeaderConfiguration{Name: name, Component: "*"})
		}
	}
}

func cloudHealth(_ app.ControllerInitContext, _ *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
	return func(context.Context, controllermanager.ControllerContext) (controller.Interface, bool, error) {
		return health{cloud.(*Provider)}, true, nil
	}
}

type health struct{ p *Provider }

func (health) Name() string { return CloudHealthController }

func (h health) HealthChecker() healthz.UnnamedHealthChecker { return h }

// Check returns nil if the mirror, the local copy of the cloud's objects, is up
// to date. Otherwise it returns the reason.
func (h health) Check(*http.Request) error { return h.p.mirror.health() }

// makeController creates an additional controller. The caller must call
// makeController before the informers start. The first result is a function
// that runs the controller until the context ends. If the configuration
// disables the controller, this result is nil.
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
			p.startWork(ctx, func(ctx context.Context) {
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
