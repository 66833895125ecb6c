package ccm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/queue"
)

// CloudAllocator is the --cidr-allocator-type by which pod ranges come from the
// cloud's network, beside --allocate-node-cidrs. kube-controller-manager must
// run with --allocate-node-cidrs=false then: two allocators fight.
const CloudAllocator = "CloudAllocator"

const ipamWorkers = 10

// allocator writes the pod ranges that the cloud's network gave to an instance
// into its Node's spec.podCIDRs: they are given when the instance is made and
// taken back when it is gone, so there is nothing to keep here and nothing to
// leak. Ranges of a Node are written once; Kubernetes does not let them change.
// Where routes are made, they are there before that.
type allocator struct {
	log      *slog.Logger
	p        *Provider
	kube     kubernetes.Interface
	nodes    corelisters.NodeLister
	clusters []netip.Prefix // --cluster-cidr; what is outside is not routed
	routes   string         // the cluster that routes are made for; "" if none are
	queue    queue.Interface
}

// newAllocator returns an allocator of ranges within clusterCIDR. With routes it
// makes those of that cluster to what it allocates.
func newAllocator(p *Provider, kube kubernetes.Interface, nodes coreinformers.NodeInformer, clusterCIDR, routes string) (*allocator, error) {
	a := &allocator{
		log: p.log, p: p, kube: kube, nodes: nodes.Lister(), routes: routes,
		queue: queue.New("cloud-node-ipam", 100*time.Millisecond, time.Minute),
	}
	for s := range strings.SplitSeq(clusterCIDR, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		c, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr: %w", err)
		}
		a.clusters = append(a.clusters, c.Masked())
	}
	add := func(obj any) {
		switch n, ok := obj.(*v1.Node); {
		case !ok:
		case len(n.Spec.PodCIDRs) > 0:
			p.routes.settle(n.Name) // who shares the informer sees them, too
		case n.DeletionTimestamp == nil:
			a.queue.Add(n.Name)
		}
	}
	_, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, after any) { add(after) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				p.routes.settle(name)
			}
		},
	})
	return a, err
}

// run allocates until ctx ends.
func (a *allocator) run(ctx context.Context) {
	queue.Drain(ctx, a.queue, ipamWorkers, func(ctx context.Context, name string) (time.Duration, error) {
		err := a.sync(ctx, name)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("a node gets no pod range", "node", name, "err", err)
		}
		return 0, err
	})
}

// sync writes one Node's ranges, if it has none and is the cloud's, or waits for it.
func (a *allocator) sync(ctx context.Context, name string) error {
	node, err := a.nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && len(node.Spec.PodCIDRs) > 0 {
		a.p.routes.settle(name)
		return nil
	}
	if err != nil {
		return err
	}
	if node.Spec.ProviderID == "" && !awaitsCloud(node) { // not the cloud's, whatever it is called
		return nil
	}
	ranges, err := a.rangesOf(ctx, node)
	if err != nil {
		return err
	}
	if a.routes != "" {
		if err := a.route(ctx, node, ranges); err != nil {
			return err
		}
	}
	change := map[string]any{"spec": map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}}
	if node.UID != "" { // and no other Node of that name, which may have come meanwhile
		change["metadata"] = map[string]any{"uid": node.UID}
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	_, err = a.kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err): // and its deletion may have been told before the routes were made
		a.p.routes.settle(name)
		return nil
	case err != nil:
		return fmt.Errorf("writing its pod ranges: %w", err)
	}
	a.log.Info("a node has its pod ranges", "node", name, "podCIDRs", ranges)
	return nil
}

// rangesOf are the ranges that the cloud gave to a Node's instance, at least one.
func (a *allocator) rangesOf(ctx context.Context, node *v1.Node) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	i, found, err := a.p.instances.find(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errors.New("its instance is not there (yet)")
	case len(i.PodRanges) == 0:
		a.p.events.Eventf(node, v1.EventTypeWarning, "CIDRNotAvailable", "Instance %s has no pod range: give its network %s podRanges, and make the instance again", i.ID, i.Network)
		return nil, fmt.Errorf("instance %s has no pod range", i.ID)
	}
	if err := a.within(i.PodRanges); err != nil {
		a.p.events.Eventf(node, v1.EventTypeWarning, "CIDRAssignmentFailed", "Instance %s: %v", i.ID, err)
		return nil, err
	}
	return i.PodRanges, nil
}

// route makes the routes to a Node's ranges before the Node has these: a kubelet
// that has them is ready, so pods run there that others send to, and upstream's
// controller would make the routes at its next round only, ten seconds later. A
// route that the cloud will not make keeps no Node waiting: that controller marks
// the Node as one whose network is unavailable.
func (a *allocator) route(ctx context.Context, node *v1.Node, ranges []string) error {
	for _, to := range ranges {
		a.p.routes.hasten(to, node.Name)
		err := a.p.routes.CreateRoute(ctx, a.routes, "", &cloudprovider.Route{TargetNode: types.NodeName(node.Name), DestinationCIDR: to})
		if err == nil {
			continue
		}
		if !final(err) {
			return err
		}
		a.log.Warn("the cloud makes no route to a node's pods", "node", node.Name, "destination", to, "err", err)
	}
	return nil
}

// final reports whether the cloud will say so again, until somebody changes it.
func final(err error) bool {
	switch cloudsim.KindOf(err) {
	case cloudsim.Invalid, cloudsim.Denied, cloudsim.Exists, cloudsim.NotFound:
		return true
	case cloudsim.Exhausted: // a table that is full, and not a rate
		e, ok := errors.AsType[*cloudsim.Error](err)
		return !ok || e.RetryAfter == 0
	}
	return false
}

// within refuses ranges that no route would be made for.
func (a *allocator) within(ranges []string) error {
	for _, s := range ranges {
		r, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("its pod range %q: %w", s, err)
		}
		if len(a.clusters) > 0 && !slices.ContainsFunc(a.clusters, func(c netip.Prefix) bool { return c.Bits() <= r.Bits() && c.Contains(r.Addr()) }) {
			return fmt.Errorf("its pod range %s is outside of --cluster-cidr %v", s, a.clusters)
		}
	}
	return nil
}
