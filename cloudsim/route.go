package cloudsim

import "net/netip"

// RouteID names a route, e.g. "route-000001". The cloud reuses an id only after a user has loaded a
// saved state or reset the cloud.
type RouteID string

// RouteState is the lifecycle state of a route.
type RouteState string

const (
	RouteCreating RouteState = "creating"
	RouteActive   RouteState = "active"
	// RouteBlackhole means that the route drops packets, because its next hop
	// does not run, or is not in the network. The route is active again when
	// the next hop runs in the network. If a caller deleted the next hop, the
	// route stays in this state until a caller deletes the route.
	RouteBlackhole RouteState = "blackhole"
	RouteDeleting  RouteState = "deleting"
	// RouteDeleted is the final state of a route. Only the event of the
	// deletion contains this state. After the deletion the API answers
	// NotFound for the route.
	RouteDeleted RouteState = "deleted"
)

// routeMoves lists every allowed transition of a route. Move returns Conflict
// for a verb that is not listed for the current state.
var routeMoves = map[RouteState]map[Verb]RouteState{
	RouteCreating:  {Settle: RouteActive, Delete: RouteDeleting},
	RouteActive:    {Lose: RouteBlackhole, Delete: RouteDeleting},
	RouteBlackhole: {Regain: RouteActive, Delete: RouteDeleting},
	RouteDeleting:  {Settle: RouteDeleted},
}

// RouteStates lists every state.
func RouteStates() []RouteState {
	return []RouteState{RouteCreating, RouteActive, RouteBlackhole, RouteDeleting, RouteDeleted}
}

// Route sends the packets for a destination range to an instance. The destination range is outside
// the network's ranges. If several routes match a destination, the route with the longest prefix
// applies.
type Route struct {
	ID RouteID `json:"id" example:"route-000001"`
	Meta
	Network     NetworkID  `json:"network" example:"net-000001"`
	Destination string     `json:"destination" doc:"Range of destination addresses" example:"10.244.1.0/24"`
	NextHop     InstanceID `json:"nextHop" doc:"Instance that receives the packets for the destination" example:"i-000001"`
	State       RouteState `json:"state" enum:"creating,active,blackhole,deleting,deleted" doc:"State. blackhole: the next hop does not run, or is not in the network, so packets to the destination are lost"`
}

// Carries reports whether a route can deliver packets to the instance. The
// result is true in the states running, rebooting and stopping.
func (i Instance) Carries() bool {
	return i.State == InstanceRunning || i.State == InstanceRebooting || i.State == InstanceStopping
}

// IsIn reports whether the route belongs to the given network.
func (r Route) IsIn(n NetworkID) bool { return r.Network == n }

// Move applies verb to r. If r's state does not allow verb, Move returns Conflict and does not
// change r.
func (r *Route) Move(verb Verb) error {
	return changeState(&r.State, routeMoves, verb, KindRoute, string(r.ID))
}

// CreateRoute requests a route. The call is idempotent: the same request with
// the same name returns the existing route. A different request with the same
// name returns Exists. A request for a second route to the same destination in
// the network also returns Exists.
type CreateRoute struct {
	Name        string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"node-1-pods"`
	Labels      map[string]string `json:"labels,omitempty"`
	Network     NetworkID         `json:"network,omitempty" maxLength:"128" doc:"Id of the network; absent for the first network of the next hop" example:"net-000001"`
	Destination string            `json:"destination" doc:"Range of destination addresses outside the network's range. The range can contain, or be inside, the range of another route" example:"10.244.1.0/24"`
	NextHop     InstanceID        `json:"nextHop" maxLength:"128" doc:"Id of the next hop, an instance in the network" example:"i-000001"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateRoute) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	p, err := netip.ParsePrefix(r.Destination)
	switch {
	case r.Destination == "":
		c.addf("destination", "is required")
	case err != nil || p.Addr().Is4In6():
		c.addf("destination", "must be a range of addresses such as 10.244.1.0/24, got %q", Clip(r.Destination))
	case p.Masked().String() != r.Destination:
		c.addf("destination", "must be written as %s, got %q", p.Masked(), Clip(r.Destination))
	default:
		c.outsideReserved("destination", p)
	}
	c.optionalReference("network", string(r.Network))
	c.reference("nextHop", string(r.NextHop))
	return c.err()
}

// CheckNetwork returns Invalid if the destination is inside a range of the network n. It also
// returns Invalid if the next hop has no address of the destination's IP family in n. The parameter
// hop is the instance of the next hop.
func (r CreateRoute) CheckNetwork(n Network, hop Instance) error {
	var c checks
	to, err := netip.ParsePrefix(r.Destination)
	if err != nil {
		return err // Validate rejects this request
	}
	for _, own := range n.Ranges() {
		if Inside(to, own) {
			c.addf("destination", "must not be inside %s, the range of network %s, which needs no route; got %s", own, n.ID, to)
		}
	}
	reachable := false
	for _, a := range hop.InterfaceIn(n.ID).Addresses {
		ip, err := netip.ParseAddr(a)
		reachable = reachable || err == nil && ip.Is4() == to.Addr().Is4()
	}
	switch {
	case !hop.IsIn(n.ID):
		c.addf("nextHop", "must be an instance in network %s, but %s is not in this network: attach the instance to the network first, or use another instance", n.ID, hop.ID)
	case !reachable:
		c.addf("nextHop", "must be an instance with an internal address of the IP family of %s, but %s has no such address", to, hop.ID)
	}
	return c.err()
}
