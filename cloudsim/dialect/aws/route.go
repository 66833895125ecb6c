package aws

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// routeRequest contains the parameters of a call that changes a route table.
type routeRequest struct {
	table       string
	destination string
	parameter   string // name of the parameter that contains the destination
	instance    string // instance of the next hop, or ""
	eni         string // network interface of the next hop, or ""
}

// decodeRouteRequest decodes the parameters of a call that changes a route table. If needsTarget is
// true, the call must contain a next hop.
func (q *query) decodeRouteRequest(needsTarget bool) routeRequest {
	r := routeRequest{table: q.requiredText("RouteTableId"), parameter: "DestinationCidrBlock"}
	if r.destination = q.text(r.parameter); r.destination == "" {
		if v := q.text("DestinationIpv6CidrBlock"); v != "" {
			r.destination, r.parameter = v, "DestinationIpv6CidrBlock"
		}
	}
	q.checkPresent(r.destination != "", r.parameter)
	p, err := netip.ParsePrefix(r.destination)
	if r.destination != "" && (err != nil || p.Masked().String() != r.destination || p.Addr().Is6() != strings.Contains(r.parameter, "Ipv6")) {
		q.fail(errInvalid(r.parameter, r.destination, "the canonical form of a range of addresses of this IP family, such as 10.244.1.0/24 or fd00:1::/64"))
	}
	if needsTarget {
		r.instance, r.eni = q.text("InstanceId"), q.text("NetworkInterfaceId")
		q.checkPresent(r.instance != "" || r.eni != "", "InstanceId or NetworkInterfaceId")
		if r.instance != "" && r.eni != "" {
			q.fail(coded(http.StatusBadRequest, "InvalidParameterCombination", "the request must have either InstanceId or NetworkInterfaceId"))
		}
	}
	return r
}

// findRoute returns the network of the route table, and the route to the destination of the
// request. If the route does not exist, findRoute returns nil for the route. If the cloud is still
// deleting the route, findRoute returns it.
func (r routeRequest) findRoute(q *query) (n cloudsim.Network, found *cloudsim.Route, err error) {
	tables, err := readByIDs(q, routeTables, []string{r.table}, nil)
	if err != nil {
		return n, nil, err
	}
	n = tables[0].Network
	all, err := routesOf(q, n.ID)
	if i := slices.IndexFunc(all, func(x cloudsim.Route) bool { return x.Destination == r.destination }); i >= 0 {
		found = &all[i]
	}
	return n, found, err
}

func (r routeRequest) nextHop(q *query) (cloudsim.InstanceID, error) {
	k, id := instances, r.instance
	if r.eni != "" {
		k, id = interfaces, r.eni
	}
	found, err := readByIDs(q, k, []string{id}, inRegionOf(q))
	if err != nil {
		return "", err
	}
	return found[0].ID, nil
}

// isFixed reports whether the destination of the request is the destination of a route that the
// dialect adds to each route table.
func (r routeRequest) isFixed(n cloudsim.Network) bool {
	return r.destination == internet || slices.ContainsFunc(n.Ranges(), func(p netip.Prefix) bool { return p.String() == r.destination })
}

// create creates a route. The argument oldRoute is an earlier route to the same destination that
// the cloud is still deleting, or nil. If oldRoute is not nil, create first waits until the cloud
// has deleted oldRoute.
func (r routeRequest) create(q *query, n cloudsim.Network, oldRoute *cloudsim.Route, hop cloudsim.InstanceID) error {
	if oldRoute != nil {
		if _, err := q.Cloud.WaitOperation(q.Context(), oldRoute.Operation); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	_, err := q.Cloud.CreateRoute(q.Context(), cloudsim.CreateRoute{
		Name: dialect.Name("route/" + string(n.ID) + "/" + r.destination), Network: n.ID, Destination: r.destination, NextHop: hop,
	})
	err = translateField(err, map[string]string{"destination": r.parameter, "nextHop": "InstanceId"})
	return translateKind(err, map[cloudsim.Kind]string{cloudsim.Exists: "RouteAlreadyExists", cloudsim.Exhausted: "RouteLimitExceeded"})
}

// createRoute creates a route. If the same route already exists, createRoute changes nothing. If
// the route table has a route to the same destination with another next hop, createRoute returns an
// error.
func createRoute(q *query) (any, error) {
	r := q.decodeRouteRequest(true)
	if err := q.finish(); err != nil {
		return nil, err
	}
	n, old, err := r.findRoute(q)
	if err != nil {
		return nil, err
	}
	hop, err := r.nextHop(q)
	if err != nil {
		return nil, err
	}
	exists := old != nil && old.State != cloudsim.RouteDeleting
	switch {
	case exists && old.NextHop == hop:
		return &returnAnswer{Return: true}, nil
	case r.isFixed(n):
		return nil, coded(http.StatusBadRequest, "RouteAlreadyExists", "the route table "+r.table+" already has a fixed route to "+r.destination+", which cannot be replaced or deleted: choose another destination")
	case exists:
		return nil, coded(http.StatusBadRequest, "RouteAlreadyExists", "the route table "+r.table+" already has a route to "+r.destination+": replace or delete it first")
	}
	return &returnAnswer{Return: true}, r.create(q, n, old, hop)
}

func deleteRoute(q *query) (any, error) {
	r := q.decodeRouteRequest(false)
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := r.delete(q, "InvalidRoute.NotFound")
	return &returnAnswer{Return: true}, err
}

// delete deletes the route to the destination of the request, and returns this route. If there is
// no route, the error has the given code.
func (r routeRequest) delete(q *query, code string) (*cloudsim.Route, error) {
	n, old, err := r.findRoute(q)
	switch {
	case err != nil:
		return nil, err
	case r.isFixed(n):
		return nil, errInvalid(r.parameter, r.destination, "the destination of a route to an instance, because all other routes of a table are fixed")
	case old == nil || old.State == cloudsim.RouteDeleting:
		return nil, coded(http.StatusBadRequest, code, fmt.Sprintf("the route table %s has no route to %s", r.table, r.destination))
	}
	gone, err := q.Cloud.DeleteRoute(q.Context(), old.ID)
	if errors.Is(err, cloudsim.NotFound) {
		err = coded(http.StatusBadRequest, code, fmt.Sprintf("another caller has deleted the route to %s", r.destination))
	}
	return &gone, translateKind(err, map[cloudsim.Kind]string{cloudsim.Conflict: "IncorrectState"})
}

// replaceRoute replaces the next hop of a route. It deletes the route and creates a new one, so the
// destination is unreachable for a short time. The deletion and the creation continue even if the
// client disconnects, so that the route is not lost.
func replaceRoute(q *query) (any, error) {
	r := q.decodeRouteRequest(true)
	if err := q.finish(); err != nil {
		return nil, err
	}
	n, old, err := r.findRoute(q)
	if err != nil {
		return nil, err
	}
	hop, err := r.nextHop(q)
	if err != nil {
		return nil, err
	}
	if old != nil && old.State != cloudsim.RouteDeleting && old.NextHop == hop {
		return &returnAnswer{Return: true}, nil
	}
	changing, cancel := q.detached()
	defer cancel()
	gone, err := r.delete(changing, "InvalidParameterValue")
	if err != nil {
		return nil, err
	}
	if err := r.create(changing, n, gone, hop); err != nil {
		restoring, cancel := q.detached() // the context of changing may have ended
		defer cancel()
		_ = r.create(restoring, n, gone, gone.NextHop) // the answer contains the first error
		return nil, err
	}
	return &returnAnswer{Return: true}, nil
}
