package ccm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// LabelNode is a label of routes. Its value is the name of the Node to which
// the route leads. The CCM does not read this label. Users can read it in
// lists of routes.
const LabelNode = "kubernetes.io/node-name"

// routes is a cloudprovider.Routes. It manages the routes in the cloud's
// network that lead to the pod ranges of Nodes. It reads and changes only
// routes with the cluster's label. It ignores the routes of users and of other
// clusters.
type routes struct {
	api       *client.Client
	instances *instances
	backoff   wait.Backoff

	mu    sync.Mutex
	early map[string]string // Node name by destination, for routes that the CCM creates before the Node has the range
}

// addEarly records a route that the allocator of pod ranges creates before the Node has its pod
// range. The argument destination is this pod range. ListRoutes omits the route until forgetNode
// removes the record. If ListRoutes returned the route, the framework would delete the route,
// because no Node has the pod range.
func (r *routes) addEarly(destination, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.early[destination] = node
}

// forgetNode removes the records of a Node. The allocator calls forgetNode when
// the Node has its ranges, or when the Node no longer exists.
func (r *routes) forgetNode(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.early, func(_, of string) bool { return of == node })
}

func (r *routes) isEarly(destination string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, early := r.early[destination]
	return early
}

// routeName returns the name of a route. The name depends only on the cluster
// and the destination. Each pod range therefore has its own route, and a
// repeated creation finds the existing route.
func routeName(cluster, destination string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + destination))
	return "k8s-" + hex.EncodeToString(sum[:16])
}

// ListRoutes returns this cluster's routes, except routes that the cloud is deleting and routes
// that addEarly has recorded. In each returned route, the field Name contains the id of the route
// in the cloud. If the instance of a route is deleted, ListRoutes marks the route as a black hole,
// and the framework deletes the route. The route of a stopped instance is not a black hole. The
// Node of this instance still exists, and the route works again after the start of the instance.
func (r *routes) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	all, _, err := cloudsim.All(ctx, r.api.ListRoutes, cloudsim.ListOptions{Labels: map[string]string{LabelCluster: cluster}})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	out := make([]*cloudprovider.Route, 0, len(all))
	for _, route := range all {
		if route.State == cloudsim.RouteDeleting || route.State == cloudsim.RouteDeleted || r.isEarly(route.Destination) {
			continue // the framework must not see this route; the framework creates the route again if necessary
		}
		node, gone, err := r.nodeOf(ctx, route.NextHop)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", route.ID, err)
		}
		out = append(out, &cloudprovider.Route{Name: string(route.ID), TargetNode: node, DestinationCIDR: route.Destination, Blackhole: gone})
	}
	return out, nil
}

// nodeOf returns the name of the instance's Node. If the instance is deleted, isGone is true.
func (r *routes) nodeOf(ctx context.Context, id cloudsim.InstanceID) (node types.NodeName, isGone bool, err error) {
	i, known := r.instances.mirror.instance(id)
	if !known {
		i, err = r.api.GetInstance(ctx, id)
	}
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return "", true, nil
	case err != nil:
		return "", false, err
	}
	return types.NodeName(i.Name), i.State == cloudsim.InstanceTerminated, nil
}

// CreateRoute creates the route and waits until the cloud has created it. If the creation takes too
// long, or if another caller changes the route table at the same time, the error is a conflict. If
// a route to the same destination exists, the result depends on this route:
//   - If the existing route belongs to this cluster and leads to the same instance, the result is
//     nil.
//   - If the existing route belongs to this cluster and leads to another instance, CreateRoute
//     replaces the existing route.
//   - If the existing route has another owner, CreateRoute returns an error.
func (r *routes) CreateRoute(ctx context.Context, cluster, _ string, route *cloudprovider.Route) error {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	hop, err := r.instanceID(ctx, string(route.TargetNode))
	if err != nil {
		return err
	}
	want := cloudsim.CreateRoute{
		Name: routeName(cluster, route.DestinationCIDR), Destination: route.DestinationCIDR, NextHop: hop,
		Labels: map[string]string{LabelCluster: cluster, LabelNode: string(route.TargetNode)},
	}
	have, err := r.api.CreateRoute(ctx, want)
	if errors.Is(err, cloudsim.Exists) {
		have, err = r.replaceRoute(ctx, want, err)
	}
	switch cloudsim.KindOf(err) {
	case cloudsim.Conflict, cloudsim.Stale: // another caller changed the route table; the framework retries a conflict at once
		return apierrors.NewConflict(schema.GroupResource{Resource: "routes"}, want.Name, err)
	}
	if err != nil {
		return fmt.Errorf("route to %s via node %q: %w", route.DestinationCIDR, route.TargetNode, err)
	}
	return r.awaitRoute(ctx, have)
}

// replaceRoute searches for an existing route with the name of the wanted route. If no route has
// this name, or if the route belongs to another cluster, the method returns an error of the kind
// cloudsim.Exists. If the route leads to the wanted instance, and the cloud is not deleting the
// route, the method returns the route. Otherwise the method deletes the route and creates the
// wanted route.
func (r *routes) replaceRoute(ctx context.Context, want cloudsim.CreateRoute, exists error) (have cloudsim.Route, err error) {
	l, err := r.api.ListRoutes(ctx, cloudsim.ListOptions{Name: want.Name})
	if err != nil {
		return have, err
	}
	if len(l.Items) == 0 {
		return have, exists // the existing route to this destination has another name, so it has another owner
	}
	have = l.Items[0]
	switch {
	case have.Labels[LabelCluster] != want.Labels[LabelCluster]:
		return have, fmt.Errorf("route %s to this destination does not belong to this cluster (%w): delete the route in the cloud", have.ID, exists)
	case have.NextHop == want.NextHop && have.State != cloudsim.RouteDeleting:
		return have, nil
	case have.State != cloudsim.RouteDeleting:
		if _, err := r.api.DeleteRoute(ctx, have.ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return have, err
		}
	}
	if err := r.awaitDeletion(ctx, have.ID); err != nil {
		return have, err
	}
	return r.api.CreateRoute(ctx, want)
}

// DeleteRoute deletes the route with the id that ListRoutes returned. If the route does not exist,
// DeleteRoute returns nil. The framework deletes and creates routes at the same time, so a new
// route may have replaced the listed route. The new route has another id, so DeleteRoute does not
// delete the new route. DeleteRoute also does not delete a route that addEarly has recorded,
// because the Node will get the range of this route.
func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if r.isEarly(route.DestinationCIDR) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	if _, err := r.api.DeleteRoute(ctx, cloudsim.RouteID(route.Name)); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return fmt.Errorf("deleting route %s: %w", route.Name, err)
	}
	return nil
}

// instanceID returns the id of the instance with the Node's name. It finds the
// instance by name, because the framework does not pass the provider id of the
// Node.
func (r *routes) instanceID(ctx context.Context, node string) (cloudsim.InstanceID, error) {
	i, err := r.instances.findAnyState(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	if err == nil && i.ID == "" {
		err = cloudsim.Errorf(cloudsim.NotFound, "no instance has the name of node %q, so the route has no next hop", node)
	}
	return i.ID, err
}

// awaitRoute polls until the cloud has created the route. If the creation takes
// too long, or if the cloud is deleting the route, the method returns a
// conflict error. The framework retries immediately after a conflict. After
// other errors, it retries at its next reconciliation of all routes.
func (r *routes) awaitRoute(ctx context.Context, have cloudsim.Route) error {
	err := wait.ExponentialBackoffWithContext(ctx, r.backoff, func(ctx context.Context) (bool, error) {
		if have.State == cloudsim.RouteCreating {
			var err error
			if have, err = r.api.GetRoute(ctx, have.ID); err != nil {
				return false, err
			}
		}
		return have.State != cloudsim.RouteCreating, nil
	})
	if isTimeout(err) || err == nil && have.State == cloudsim.RouteDeleting {
		return apierrors.NewConflict(schema.GroupResource{Resource: "routes"}, have.Name, fmt.Errorf("the route is %s", have.State))
	}
	return err
}

func (r *routes) awaitDeletion(ctx context.Context, id cloudsim.RouteID) error {
	err := wait.ExponentialBackoffWithContext(ctx, r.backoff, func(ctx context.Context) (bool, error) {
		_, err := r.api.GetRoute(ctx, id)
		if errors.Is(err, cloudsim.NotFound) {
			return true, nil
		}
		return false, err
	})
	if isTimeout(err) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "routes"}, string(id), errors.New("the route is still being deleted"))
	}
	return err
}
