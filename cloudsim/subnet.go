package cloudsim

import "net/netip"

// SubnetID names a subnet, e.g. "subnet-000001". The cloud reuses an id only after a user has
// loaded a saved state or reset the cloud.
type SubnetID string

// SubnetState is the lifecycle state of a subnet.
type SubnetState string

const (
	SubnetCreating  SubnetState = "creating"
	SubnetAvailable SubnetState = "available"
	SubnetDeleting  SubnetState = "deleting"
	// SubnetDeleted is the final state of a subnet. Only the event of the
	// deletion contains this state. After the deletion the API answers
	// NotFound for the subnet.
	SubnetDeleted SubnetState = "deleted"
)

// subnetMoves lists every allowed transition of a subnet. Move returns Conflict
// for a verb that is not listed for the current state.
var subnetMoves = map[SubnetState]map[Verb]SubnetState{
	SubnetCreating:  {Settle: SubnetAvailable, Delete: SubnetDeleting},
	SubnetAvailable: {Delete: SubnetDeleting},
	SubnetDeleting:  {Settle: SubnetDeleted},
}

// SubnetStates lists every state.
func SubnetStates() []SubnetState {
	return []SubnetState{SubnetCreating, SubnetAvailable, SubnetDeleting, SubnetDeleted}
}

// Subnet is a part of a network. Each instance of the network is in one subnet. By default,
// each instance gets the lowest free address of each range of the subnet.
type Subnet struct {
	ID SubnetID `json:"id" example:"subnet-000001"`
	Meta
	Network NetworkID   `json:"network" example:"net-000001"`
	Region  string      `json:"region,omitempty" doc:"Region of the subnet's instances; absent for all regions" example:"sim-1"`
	Zone    string      `json:"zone,omitempty" doc:"Zone of the subnet's instances; absent for all zones" example:"sim-1a"`
	IPv4    string      `json:"ipv4" doc:"IPv4 range. Instances never get the first address, the last address or the address of the gateway" example:"10.10.1.0/24"`
	IPv6    string      `json:"ipv6,omitempty" doc:"IPv6 range; absent without IPv6" example:"fd10:0:0:1::/64"`
	State   SubnetState `json:"state" enum:"creating,available,deleting,deleted"`

	Gateway     string `json:"gateway,omitempty" doc:"IPv4 gateway of the instances; absent if the addresses are loopback addresses" example:"10.10.1.1"`
	GatewayIPv6 string `json:"gatewayIPv6,omitempty" doc:"IPv6 gateway of the instances; absent without IPv6, or if the addresses are loopback addresses" example:"fd10:0:0:1::1"`
}

// Ranges returns the subnet's ranges, IPv4 first.
func (s Subnet) Ranges() []netip.Prefix { return parseRanges(s.IPv4, s.IPv6) }

// Serves reports whether s can contain instances of a zone.
func (s Subnet) Serves(region, zone string) bool {
	return (s.Region == "" || s.Region == region) && (s.Zone == "" || s.Zone == zone)
}

// GatewayOf returns the gateway address of a range. It returns an invalid
// address for a loopback range, because loopback has no gateway.
func GatewayOf(r netip.Prefix) netip.Addr {
	if r.Addr().IsLoopback() {
		return netip.Addr{}
	}
	return r.Masked().Addr().Next()
}

// IsIn reports whether the subnet belongs to the given network.
func (s Subnet) IsIn(n NetworkID) bool { return s.Network == n }

// Move applies verb to s. If s's state does not allow verb, Move returns Conflict
// and does not change s.
func (s *Subnet) Move(verb Verb) error {
	return changeState(&s.State, subnetMoves, verb, KindSubnet, string(s.ID))
}

// CreateSubnet requests a subnet. The call is idempotent: the same request with
// the same name returns the existing subnet. A different request with the same
// name returns Exists.
type CreateSubnet struct {
	Name    string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop-a"`
	Labels  map[string]string `json:"labels,omitempty"`
	Network NetworkID         `json:"network" maxLength:"128" example:"net-000002"`
	Region  string            `json:"region,omitempty" maxLength:"63" doc:"Region of the subnet. The default is the region of the zone in the field zone. Without region and zone, the subnet is in all regions" example:"sim-1"`
	Zone    string            `json:"zone,omitempty" maxLength:"63" doc:"Zone of a zonal subnet" example:"sim-1a"`
	IPv4    string            `json:"ipv4" doc:"IPv4 range inside the network's range. It must not overlap other subnets" example:"10.10.1.0/24"`
	IPv6    string            `json:"ipv6,omitempty" doc:"IPv6 range inside the network's range; only in a network with IPv6" example:"fd10:0:0:1::/64"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateSubnet) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	c.reference("network", string(r.Network))
	if r.Region != "" {
		c.name("region", r.Region)
	}
	if r.Zone != "" {
		c.name("zone", r.Zone)
	}
	c.networkRanges(r.IPv4, r.IPv6)
	return c.err()
}

// CheckNetwork returns Invalid if the ranges of the subnet are not inside the ranges of the
// network n.
func (r CreateSubnet) CheckNetwork(n Network) error {
	var c checks
	for _, f := range []struct{ field, part, whole string }{{"ipv4", r.IPv4, n.IPv4}, {"ipv6", r.IPv6, n.IPv6}} {
		part, err := netip.ParsePrefix(f.part)
		if err != nil {
			continue // the range is absent, or Validate rejects it
		}
		whole, err := netip.ParsePrefix(f.whole)
		switch {
		case err != nil:
			c.addf(f.field, "is %s, but network %s has no IPv6 range", part, n.ID)
		case !Inside(part, whole):
			c.addf(f.field, "must be inside %s, the range of network %s; got %s", whole, n.ID, part)
		}
	}
	return c.err()
}
