package engine

import (
	"context"
	"errors"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const (
	byDestination = "destination"
	byNextHop     = "nextHop"
)

var routes = store.Table[cloudsim.Route]{
	Kind: cloudsim.KindRoute, Prefix: "route",
	ID:   func(r *cloudsim.Route) string { return string(r.ID) },
	Meta: func(r *cloudsim.Route) *cloudsim.Meta { return &r.Meta },
	Uses: store.One[cloudsim.Route](cloudsim.QuotaRoutes),
	Index: map[string]func(*cloudsim.Route) []string{
		byNetwork:     func(r *cloudsim.Route) []string { return []string{string(r.Network)} },
		byNextHop:     func(r *cloudsim.Route) []string { return []string{string(r.NextHop)} },
		byDestination: func(r *cloudsim.Route) []string { return []string{destinationKey(r.Network, r.Destination)} },
	},
}

func destinationKey(n cloudsim.NetworkID, destination string) string {
	return string(n) + " " + destination
}

// CreateRoute begins to create a route. If a route with the same name exists and matches the
// request, CreateRoute returns the existing route. It returns Exists if another route in the
// network has the same destination. It returns Exhausted if the network already has its maximum
// number of routes. It returns Conflict if the route would redirect traffic of load balancers or of
// other networks (see the function checkRoute).
func (e *Engine) CreateRoute(ctx context.Context, req cloudsim.CreateRoute) (r cloudsim.Route, err error) {
	if err := req.Validate(); err != nil {
		return r, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		r, err = idempotent(tx, call, routes, req, func() (cloudsim.Route, error) { return e.routeByName(tx, call, req) })
		return err
	})
	return r, err
}

// routeByName creates a route if no route has the requested name. If the route with this name is in
// state deleting, routeByName returns Conflict. If the route matches the request, routeByName
// returns the route. Otherwise it returns Exists.
func (e *Engine) routeByName(tx *store.Tx, call Call, req cloudsim.CreateRoute) (r cloudsim.Route, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return r, err
	}
	have, err := routes.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return e.newRoute(tx, call, project, req)
	case err != nil:
		return r, err
	case have.State == cloudsim.RouteDeleting:
		return r, cloudsim.Errorf(cloudsim.Conflict, "the earlier route %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	case have.Destination != req.Destination || have.NextHop != req.NextHop:
		return r, errNameTaken(cloudsim.KindRoute, req.Name, string(have.ID), "destination "+have.Destination+" and next hop "+string(have.NextHop))
	case req.Network != "" && have.Network != req.Network:
		return r, errNameTaken(cloudsim.KindRoute, req.Name, string(have.ID), "network "+string(have.Network))
	case !sameLabels(have.Labels, req.Labels):
		return r, errNameTaken(cloudsim.KindRoute, req.Name, string(have.ID), "other labels")
	}
	return have, nil
}

func (e *Engine) newRoute(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateRoute) (r cloudsim.Route, err error) {
	hop, err := instances.Get(tx, string(req.NextHop))
	switch {
	case errors.Is(err, cloudsim.NotFound) || err == nil && hop.Project != project:
		return r, errUnknownReference("nextHop", string(req.NextHop), "see GET /v1/instances")
	case err != nil:
		return r, err
	}
	if req.Network == "" {
		req.Network = hop.Network
	}
	n, err := usableNetwork(tx, project, req.Network)
	if err != nil {
		return r, err
	}
	if err := req.CheckNetwork(n, hop); err != nil {
		return r, err
	}
	to, err := netip.ParsePrefix(req.Destination)
	if err != nil {
		return r, err // this error is not possible, because Validate has checked the destination
	}
	if err := e.checkRoute(tx, n, hop, to); err != nil {
		return r, err
	}
	if err := e.checkRanges([]wantedRange{{"destination", to}}); err != nil {
		return r, err
	}
	for existing, err := range routes.Find(tx, byDestination, destinationKey(n.ID, req.Destination), "") {
		if err != nil {
			return r, err
		}
		return r, cloudsim.Errorf(cloudsim.Exists, "network %s already has a route to %s: %s (%s) with next hop %s", n.ID, req.Destination, existing.ID, existing.Name, existing.NextHop)
	}
	if routes.Count(tx, byNetwork, string(n.ID), n.MaxRoutes) >= n.MaxRoutes {
		return r, cloudsim.Errorf(cloudsim.Exhausted, "network %s (%s) has %d routes, which is the maximum: delete a route, or increase maxRoutes of the network", n.ID, n.Name, n.MaxRoutes)
	}
	if err := e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaRoutes, N: 1}); err != nil {
		return r, err
	}
	id, err := routes.NextID(tx)
	if err != nil {
		return r, err
	}
	r = cloudsim.Route{
		ID: cloudsim.RouteID(id), Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Network: n.ID, Destination: req.Destination, NextHop: hop.ID, State: cloudsim.RouteCreating,
	}
	return r, e.workOnRoute(tx, call, &r, cloudsim.Create)
}

func (e *Engine) workOnRoute(tx *store.Tx, call Call, r *cloudsim.Route, verb cloudsim.Verb) error {
	return beginWork(e, tx, call, routes, r, verb, e.cfg.Profile.Network, e.settledRoute)
}

func (e *Engine) settledRoute(tx *store.Tx, r *cloudsim.Route) error {
	if err := r.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, r.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if r.State == cloudsim.RouteDeleted {
		return routes.Delete(tx, r)
	}
	hop, err := instances.Get(tx, string(r.NextHop))
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return err
	}
	if err != nil || !hop.Carries() || !hop.IsIn(r.Network) {
		if err := r.Move(cloudsim.Lose); err != nil {
			return err
		}
	}
	return routes.Put(tx, r)
}

// reroute updates the active and blackhole routes that have instance i as their next hop. Call
// reroute after each change of the instance's networks, and after each change that may start or
// stop the traffic of the instance. reroute ignores new routes, because settledRoute checks the
// next hop of these routes.
func reroute(tx *store.Tx, i *cloudsim.Instance) error {
	by, err := routes.Lookup(tx, byNextHop, string(i.ID))
	if err != nil {
		return err
	}
	for _, r := range by {
		carries := i.Carries() && i.IsIn(r.Network)
		verb := cloudsim.Verb("")
		switch {
		case r.State == cloudsim.RouteActive && !carries:
			verb = cloudsim.Lose
		case r.State == cloudsim.RouteBlackhole && carries:
			verb = cloudsim.Regain
		default:
			continue
		}
		if err := r.Move(verb); err != nil {
			return err
		}
		if err := routes.Put(tx, &r); err != nil {
			return err
		}
	}
	return nil
}

// GetRoute returns a route, or NotFound after the route is deleted.
func (e *Engine) GetRoute(ctx context.Context, id cloudsim.RouteID) (cloudsim.Route, error) {
	return read(ctx, e.core, routes, string(id))
}

// ListRoutes returns one page of routes.
func (e *Engine) ListRoutes(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Route], error) {
	return listPage(ctx, e.core, routes, o, nil)
}

// DeleteRoute begins to delete a route and returns the route. It does not change
// a route that is already in state deleting.
func (e *Engine) DeleteRoute(ctx context.Context, id cloudsim.RouteID) (r cloudsim.Route, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if r, err = get(tx, call, routes, string(id)); err != nil || r.State == cloudsim.RouteDeleting {
			return err
		}
		if err := r.Move(cloudsim.Delete); err != nil {
			return err
		}
		return e.workOnRoute(tx, call, &r, cloudsim.Delete)
	})
	return r, err
}
