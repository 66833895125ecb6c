package conform

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

var routeChecks = []Check{
	{ID: "route.create", Level: Must, skipReason: needsRoutes, run: checkRouteCreate,
		Title: "Each pod range of a Node gets one route to its machine, and the condition NetworkUnavailable of the Node becomes False"},
	{ID: "route.repair", Level: Must, skipReason: needsRoutes, run: checkRouteRepair,
		Title: "The CCM creates a deleted route again"},
	{ID: "route.delete", Level: Must, skipReason: needsRoutes, run: checkRouteDelete,
		Title: "The route of a deleted Node is deleted"},
	{ID: "route.foreign", Level: Must, skipReason: needsRoutes, run: checkRouteForeign,
		Title: "The CCM does not delete a route outside of the pod ranges of the cluster"},
}

// podRange returns the pod range with the number n. Each pod range has 16 addresses. The pod range
// 0 is at the end of the cluster's range. Controllers that assign pod ranges start at the beginning
// of the cluster's range. podRange counts from the end, to avoid the ranges of these controllers.
func (e *env) podRange(n int) (string, error) {
	all, err := netip.ParsePrefix(e.caps.ClusterCIDR)
	if err != nil || !all.Addr().Is4() || all.Bits() > 20 {
		return "", fmt.Errorf("capabilities: clusterCIDR is %q; want an IPv4 range with a prefix of at most 20 bits", e.caps.ClusterCIDR)
	}
	first := all.Masked().Addr().As4()
	last := binary.BigEndian.Uint32(first[:]) | (1<<(32-all.Bits()) - 1)
	binary.BigEndian.PutUint32(first[:], last-16*uint32(n+1)+1)
	return netip.PrefixFrom(netip.AddrFrom4(first), 28).String(), nil
}

// createRouted creates a machine and its Node, which has the pod range podRange(n). It waits until
// the route to this range exists.
func (e *env) createRouted(ctx context.Context, n int) (Machine, Route, error) {
	cidr, err := e.podRange(n)
	if err != nil {
		return Machine{}, Route{}, err
	}
	m, err := e.joinNode(ctx, "a", func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = cidr, []string{cidr} })
	if err != nil {
		return m, Route{}, err
	}
	r, err := e.routeTo(ctx, cidr, m.Name)
	return m, r, err
}

func (e *env) listRoutes(ctx context.Context, cidr string) ([]Route, error) {
	all, err := e.driver.ListRoutes(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver: list routes: %w", err)
	}
	return slices.DeleteFunc(all, func(r Route) bool { return r.CIDR != cidr }), nil
}

// routeTo waits until exactly one route has the given destination, and this route leads to the
// machine.
func (e *env) routeTo(ctx context.Context, cidr, machine string) (r Route, err error) {
	err = e.retryUntilOK(ctx, "the only route to "+cidr+" leads to "+machine, func(ctx context.Context) error {
		found, err := e.listRoutes(ctx, cidr)
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0].Machine != machine {
			return fmt.Errorf("the routes are %v; want one route to %s", found, machine)
		}
		r = found[0]
		return nil
	})
	return r, err
}

func checkRouteCreate(ctx context.Context, e *env) error {
	m, _, err := e.createRouted(ctx, 0)
	if err != nil {
		return err
	}
	return e.nodeBecomes(ctx, m.Name, "connected", func(n *v1.Node) error {
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeNetworkUnavailable && c.Status == v1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("the condition %s is not False", v1.NodeNetworkUnavailable)
	})
}

func checkRouteRepair(ctx context.Context, e *env) error {
	m, r, err := e.createRouted(ctx, 1)
	if err != nil {
		return err
	}
	if err := e.driver.DeleteRoute(ctx, r.ID); err != nil {
		return fmt.Errorf("driver: delete route: %w", err)
	}
	_, err = e.routeTo(ctx, r.CIDR, m.Name)
	return err
}

func checkRouteDelete(ctx context.Context, e *env) error {
	m, r, err := e.createRouted(ctx, 2)
	if err != nil {
		return err
	}
	if err := e.deleteNode(ctx, m.Name); err != nil {
		return err
	}
	return e.retryUntilOK(ctx, "the route to "+r.CIDR+" is deleted", func(ctx context.Context) error {
		found, err := e.listRoutes(ctx, r.CIDR)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("the cloud still has the routes %v", found)
		}
		return err
	})
}

func checkRouteForeign(ctx context.Context, e *env) error {
	m, _, err := e.createRouted(ctx, 3)
	if err != nil {
		return err
	}
	const other = "172.31.255.0/24" // a private range that few clusters use
	r, err := e.driver.CreateRoute(ctx, Route{CIDR: other, Machine: m.Name})
	if err != nil {
		return fmt.Errorf("driver: create route: %w", err)
	}
	e.addCleanup(func(ctx context.Context) error {
		if err := e.driver.DeleteRoute(ctx, r.ID); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
	return e.checkAlways(ctx, "the route to "+other+" stays", func(ctx context.Context) error {
		found, err := e.listRoutes(ctx, other)
		if err == nil && len(found) != 1 {
			err = errors.New("the CCM deleted the route")
		}
		return err
	})
}
