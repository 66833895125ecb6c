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

// LabelNode is the name of the Node that a route leads to, for people.
const LabelNode = "kubernetes.io/node-name"

// routes keeps a route in the cloud's network for every range of pods. It is a
// cloudprovider.Routes. It sees and touches only what carries the cluster's
// name: a person's routes, and another cluster's, are not its own.
type routes struct {
	api       *client.Client
	instances *instances
	patience  wait.Backoff

	mu    sync.Mutex
	early map[string]string // destinations to the Nodes that do not show these ranges yet
}

// hasten says of a route to a Node's range that it is made before the Node shows
// the range: until settle, ListRoutes leaves it out, and so the framework does not
// delete it as one that no Node has.
func (r *routes) hasten(destination, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.early[destination] = node
}

// settle says of a Node that the framework sees its ranges, or that it is gone.
func (r *routes) settle(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.early, func(_, of string) bool { return of == node })
}

func (r *routes) hastened(destination string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, early := r.early[destination]
	return early
}

// routeName comes from the cluster and the destination alone, so each pod range
// of a Node has a route of its own, and to make it again finds it.
func routeName(cluster, destination string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + destination))
	return "k8s-" + hex.EncodeToString(sum[:16])
}

// ListRoutes returns this cluster's routes, each named by its id. One whose instance is gone for ever
// is a black hole, which the framework deletes. One whose instance is only
// stopped is not: its Node is still there, and it works again when that does.
func (r *routes) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	all, _, err := cloudsim.All(ctx, r.api.ListRoutes, cloudsim.ListOptions{Labels: map[string]string{LabelCluster: cluster}})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	out := make([]*cloudprovider.Route, 0, len(all))
	for _, route := range all {
		if route.State == cloudsim.RouteDeleting || route.State == cloudsim.RouteDeleted || r.hastened(route.Destination) {
			continue // as good as gone: who needs it makes it again
		}
		node, gone, err := r.nodeOf(ctx, route.NextHop)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", route.ID, err)
		}
		out = append(out, &cloudprovider.Route{Name: string(route.ID), TargetNode: node, DestinationCIDR: route.Destination, Blackhole: gone})
	}
	return out, nil
}

// nodeOf is the name of the instance's Node, which is the instance's own.
func (r *routes) nodeOf(ctx context.Context, id cloudsim.InstanceID) (node types.NodeName, gone bool, err error) {
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

// CreateRoute makes the route and waits until it carries. One that is there
// already is fine; one of ours that leads elsewhere is replaced; a destination
// that somebody else has a route to is an error.
func (r *routes) CreateRoute(ctx context.Context, cluster, _ string, route *cloudprovider.Route) error {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	hop, err := r.hop(ctx, string(route.TargetNode))
	if err != nil {
		return err
	}
	want := cloudsim.CreateRoute{
		Name: routeName(cluster, route.DestinationCIDR), Destination: route.DestinationCIDR, NextHop: hop,
		Labels: map[string]string{LabelCluster: cluster, LabelNode: string(route.TargetNode)},
	}
	have, err := r.api.CreateRoute(ctx, want)
	if errors.Is(err, cloudsim.Exists) {
		have, err = r.replace(ctx, want, err)
	}
	switch cloudsim.KindOf(err) {
	case cloudsim.Conflict, cloudsim.Stale: // somebody else works on the table: at once again
		return apierrors.NewConflict(schema.GroupResource{Resource: "routes"}, want.Name, err)
	}
	if err != nil {
		return fmt.Errorf("route to %s by node %q: %w", route.DestinationCIDR, route.TargetNode, err)
	}
	return r.await(ctx, have)
}

// replace makes room for want if what has its name is ours and is another, and
// makes it.
func (r *routes) replace(ctx context.Context, want cloudsim.CreateRoute, exists error) (have cloudsim.Route, err error) {
	l, err := r.api.ListRoutes(ctx, cloudsim.ListOptions{Name: want.Name})
	if err != nil {
		return have, err
	}
	if len(l.Items) == 0 {
		return have, exists // a route of another name, which is not ours
	}
	have = l.Items[0]
	switch {
	case have.Labels[LabelCluster] != want.Labels[LabelCluster]:
		return have, fmt.Errorf("%s is not this cluster's: %w", have.ID, exists)
	case have.NextHop == want.NextHop && have.State != cloudsim.RouteDeleting:
		return have, nil
	case have.State != cloudsim.RouteDeleting:
		if _, err := r.api.DeleteRoute(ctx, have.ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return have, err
		}
	}
	if err := r.gone(ctx, have.ID); err != nil {
		return have, err
	}
	return r.api.CreateRoute(ctx, want)
}

// DeleteRoute deletes a route that ListRoutes returned; one that is gone is fine.
// The framework deletes and makes routes at once: one that has replaced it since,
// or that was hastened, stays.
func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if r.hastened(route.DestinationCIDR) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	if _, err := r.api.DeleteRoute(ctx, cloudsim.RouteID(route.Name)); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return fmt.Errorf("route %s: deleting it: %w", route.Name, err)
	}
	return nil
}

// hop is the instance of a Node's name, found as for a Node that was never
// initialised.
func (r *routes) hop(ctx context.Context, node string) (cloudsim.InstanceID, error) {
	i, err := r.instances.look(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	if err == nil && i.ID == "" {
		err = cloudsim.Errorf(cloudsim.NotFound, "node %q has no instance of its name to route to", node)
	}
	return i.ID, err
}

// await polls until the route is made. A conflict has the framework ask again
// at once, where any other error waits for its next round.
func (r *routes) await(ctx context.Context, have cloudsim.Route) error {
	err := wait.ExponentialBackoffWithContext(ctx, r.patience, func(ctx context.Context) (bool, error) {
		if have.State == cloudsim.RouteCreating {
			var err error
			if have, err = r.api.GetRoute(ctx, have.ID); err != nil {
				return false, err
			}
		}
		return have.State != cloudsim.RouteCreating, nil
	})
	if ranOut(err) || err == nil && have.State == cloudsim.RouteDeleting {
		return apierrors.NewConflict(schema.GroupResource{Resource: "routes"}, have.Name, fmt.Errorf("it is %s", have.State))
	}
	return err
}

func (r *routes) gone(ctx context.Context, id cloudsim.RouteID) error {
	err := wait.ExponentialBackoffWithContext(ctx, r.patience, func(ctx context.Context) (bool, error) {
		_, err := r.api.GetRoute(ctx, id)
		if errors.Is(err, cloudsim.NotFound) {
			return true, nil
		}
		return false, err
	})
	if ranOut(err) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "routes"}, string(id), errors.New("it is still being deleted"))
	}
	return err
}
