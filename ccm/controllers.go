package ccm

import (
	"context"
	"maps"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
)

// The controllers of ours, beside upstream's. Their names are for --controllers
// and for leader migration; like upstream's they are stable.
const (
	ServiceRepairController = "service-lb-repair-controller"
	ServiceOrphanController = "service-lb-orphan-controller"
	NodeLabelController     = "cloud-node-label-controller"
	NodeIPAMController      = "cloud-node-ipam-controller"
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
		ServiceRepairController: {"service-controller", makeRepairer},
		ServiceOrphanController: {"service-controller", makeSweeper},
		NodeLabelController:     {"node-controller", makeLabeler},
		NodeIPAMController:      {"node-controller", makeAllocator},
	} {
		all[name] = app.ControllerInitFuncConstructor{
			InitContext: app.ControllerInitContext{ClientName: c.client},
			Constructor: c.make.constructor(name),
		}
	}
	return all
}

// makeController makes a controller of ours before the informers start, and
// returns what runs it until its context ends; nil if it is not wanted.
type makeController func(p *Provider, client string, c *appconfig.CompletedConfig) (run func(context.Context), err error)

func (m makeController) constructor(name string) app.InitFuncConstructor {
	return func(ic app.ControllerInitContext, c *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
		return func(ctx context.Context, cc controllermanager.ControllerContext) (controller.Interface, bool, error) {
			p := cloud.(*Provider)
			run, err := m(p, ic.ClientName, c)
			if err != nil || run == nil {
				return nil, false, err
			}
			p.runs.Go(func() {
				cc.ControllerManagerMetrics.ControllerStarted(name)
				defer cc.ControllerManagerMetrics.ControllerStopped(name)
				run(ctx)
			})
			return nil, true, nil
		}
	}
}

func makeRepairer(p *Provider, client string, c *appconfig.CompletedConfig) (func(context.Context), error) {
	kube, err := c.ClientBuilder.Client(client)
	if err != nil {
		return nil, err
	}
	core := c.SharedInformers.Core().V1()
	r, err := newRepairer(p, kube, core.Services(), core.Nodes(), c.ComponentConfig.KubeCloudShared.ClusterName)
	if err != nil {
		return nil, err
	}
	return r.run, nil
}

func makeSweeper(p *Provider, client string, c *appconfig.CompletedConfig) (func(context.Context), error) {
	kube, err := c.ClientBuilder.Client(client)
	if err != nil {
		return nil, err
	}
	return newSweeper(p, kube, c.ComponentConfig.KubeCloudShared.ClusterName).run, nil
}

func makeLabeler(p *Provider, client string, c *appconfig.CompletedConfig) (func(context.Context), error) {
	kube, err := c.ClientBuilder.Client(client)
	if err != nil {
		return nil, err
	}
	return (&labeler{p.log, p, kube, c.SharedInformers.Core().V1().Nodes().Lister()}).run, nil
}

// makeAllocator makes none unless upstream's two flags ask for it.
func makeAllocator(p *Provider, client string, c *appconfig.CompletedConfig) (func(context.Context), error) {
	shared := c.ComponentConfig.KubeCloudShared
	if !shared.AllocateNodeCIDRs || shared.CIDRAllocatorType != CloudAllocator {
		return nil, nil
	}
	kube, err := c.ClientBuilder.Client(client)
	if err != nil {
		return nil, err
	}
	a, err := newAllocator(p, kube, c.SharedInformers.Core().V1().Nodes(), shared.ClusterCIDR)
	if err != nil {
		return nil, err
	}
	return a.run, nil
}
