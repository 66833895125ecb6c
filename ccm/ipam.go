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

// CloudAllocator is a value of --cidr-allocator-type. With this value and
// --allocate-node-cidrs, the CCM assigns pod ranges from the cloud's network to
// Nodes. kube-controller-manager must then run with
// --allocate-node-cidrs=false, because otherwise both programs would assign
// ranges.
const CloudAllocator = "CloudAllocator"

const ipamWorkers = 10

// allocator copies the pod ranges of an instance to spec.podCIDRs of its Node.
// The cloud assigns the ranges when it creates the instance, and frees the
// ranges when it deletes the instance. The allocator therefore needs no records
// of its own. It writes the ranges of a Node only once, because Kubernetes does
// not allow a change of these ranges. If the CCM manages routes, the allocator
// creates the routes before it writes the ranges.
type allocator struct {
	log      *slog.Logger
	p        *Provider
	kube     kubernetes.Interface
	nodes    corelisters.NodeLister
	clusters []netip.Prefix // --cluster-cidr; upstream creates no routes to ranges outside of these prefixes
	routes   string         // cluster name in the labels of routes; empty if the CCM does not manage routes
	queue    queue.Interface
}

// newAllocator returns an allocator that accepts only ranges within clusterCIDR, a comma-separated
// list of prefixes. If clusterCIDR is empty, the allocator accepts all ranges. If clusterName is
// not empty, the allocator also creates the routes of this cluster.
func newAllocator(p *Provider, kube kubernetes.Interface, nodes coreinformers.NodeInformer, clusterCIDR, clusterName string) (*allocator, error) {
	a := &allocator{
		log: p.log, p: p, kube: kube, nodes: nodes.Lister(), routes: clusterName,
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
			p.routes.forgetNode(n.Name) // the route controller uses the same informer, so it already knows the ranges of the Node
		case n.DeletionTimestamp == nil:
			a.queue.Add(n.Name)
		}
	}
	_, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, after any) { add(after) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				p.routes.forgetNode(name)
			}
		},
	})
	return a, err
}

func (a *allocator) run(ctx context.Context) {
	queue.Drain(ctx, a.queue, ipamWorkers, func(ctx context.Context, name string) (time.Duration, error) {
		err := a.sync(ctx, name)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("cannot set spec.podCIDRs of a Node", "node", name, "err", err)
		}
		return 0, err
	})
}

// sync writes the pod ranges of an instance to its Node, which has the given name. If the Node
// already has ranges, or does not belong to the cloud, sync writes nothing. A Node belongs to the
// cloud if it has a provider id, or if it still waits for initialization.
func (a *allocator) sync(ctx context.Context, name string) error {
	node, err := a.nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && len(node.Spec.PodCIDRs) > 0 {
		a.p.routes.forgetNode(name)
		return nil
	}
	if err != nil {
		return err
	}
	if node.Spec.ProviderID == "" && !awaitsCloud(node) { // the Node does not belong to this cloud, even if an instance has the same name
		return nil
	}
	ranges, err := a.rangesOf(ctx, node)
	if err != nil {
		return err
	}
	if a.routes != "" {
		if err := a.createRoutes(ctx, node, ranges); err != nil {
			return err
		}
	}
	change := map[string]any{"spec": map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}}
	if node.UID != "" { // the patch must not change a newer Node with the same name
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
	case apierrors.IsNotFound(err): // the informer may have reported the deletion before sync created the routes
		a.p.routes.forgetNode(name)
		return nil
	case err != nil:
		return fmt.Errorf("writing spec.podCIDRs of the Node: %w", err)
	}
	a.log.Info("spec.podCIDRs of a Node set", "node", name, "podCIDRs", ranges)
	return nil
}

// rangesOf returns the pod ranges of the Node's instance. It returns an error if the instance does
// not exist. If the instance has no ranges, or if a range is outside of --cluster-cidr, rangesOf
// emits an event on the Node and returns an error.
func (a *allocator) rangesOf(ctx context.Context, node *v1.Node) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	i, found, err := a.p.instances.find(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errors.New("the instance of the Node does not exist (yet)")
	case len(i.PodRanges) == 0:
		a.p.events.Eventf(node, v1.EventTypeWarning, "CIDRNotAvailable", "Instance %s has no pod range: set podRanges of network %s, and create the instance again", i.ID, i.Network)
		return nil, fmt.Errorf("instance %s has no pod range", i.ID)
	}
	if err := a.checkRanges(i.PodRanges); err != nil {
		a.p.events.Eventf(node, v1.EventTypeWarning, "CIDRAssignmentFailed", "Instance %s: %v", i.ID, err)
		return nil, err
	}
	return i.PodRanges, nil
}

// createRoutes creates the routes to a Node's ranges before the Node gets the ranges.
// A Node becomes ready when it has ranges. Pods then run on the Node, and other
// pods need a route to these pods. Without createRoutes, upstream's route
// controller would create the routes up to ten seconds later, in its next round.
// If the cloud refuses a route and a retry cannot help, the Node gets its ranges
// without the route. Upstream's route controller then marks the network of the Node as unavailable.
func (a *allocator) createRoutes(ctx context.Context, node *v1.Node, ranges []string) error {
	for _, to := range ranges {
		a.p.routes.addEarly(to, node.Name)
		err := a.p.routes.CreateRoute(ctx, a.routes, "", &cloudprovider.Route{TargetNode: types.NodeName(node.Name), DestinationCIDR: to})
		if err == nil {
			continue
		}
		if !isPermanent(err) {
			return err
		}
		a.log.Warn("the cloud has no route to a node's pods", "node", node.Name, "destination", to, "err", err)
	}
	return nil
}

// isPermanent reports whether all retries fail until a person changes the
// configuration.
func isPermanent(err error) bool {
	switch cloudsim.KindOf(err) {
	case cloudsim.Invalid, cloudsim.Denied, cloudsim.Exists, cloudsim.NotFound:
		return true
	case cloudsim.Exhausted: // permanent only if the route table is full; that error has no retry time, while the error of a rate limit has a retry time
		e, ok := errors.AsType[*cloudsim.Error](err)
		return !ok || e.RetryAfter == 0
	}
	return false
}

// checkRanges returns an error if a range is outside of --cluster-cidr,
// because upstream creates no route to such a range.
func (a *allocator) checkRanges(ranges []string) error {
	for _, s := range ranges {
		r, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("pod range %q: %w", s, err)
		}
		if len(a.clusters) > 0 && !slices.ContainsFunc(a.clusters, func(c netip.Prefix) bool { return c.Bits() <= r.Bits() && c.Contains(r.Addr()) }) {
			return fmt.Errorf("pod range %s is outside of --cluster-cidr %v", s, a.clusters)
		}
	}
	return nil
}
