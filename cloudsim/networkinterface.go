package cloudsim

import (
	"net/netip"
	"slices"
)

// MaxNetworkInterfaces is the maximum number of networks that an instance can have in addition to
// its first network.
const MaxNetworkInterfaces = 3

// NetworkInterface contains the addresses of an instance in an additional network.
type NetworkInterface struct {
	Network   NetworkID `json:"network" example:"net-000002"`
	Subnet    SubnetID  `json:"subnet" example:"subnet-000002"`
	Addresses []string  `json:"addresses" doc:"One address from each range of the subnet, IPv4 first" example:"[\"10.10.1.2\"]"`
}

// IsIn reports whether the instance is in the given network.
func (i Instance) IsIn(n NetworkID) bool { return i.Network == n || i.additional(n) >= 0 }

// additional returns the index of an additional network in i.NetworkInterfaces, or -1.
func (i Instance) additional(n NetworkID) int {
	return slices.IndexFunc(i.NetworkInterfaces, func(f NetworkInterface) bool { return f.Network == n })
}

// InterfaceIn returns the subnet and the internal addresses of the instance in the given network. It
// returns the zero NetworkInterface if the instance is not in this network.
func (i Instance) InterfaceIn(n NetworkID) NetworkInterface {
	if i.Network != n {
		if at := i.additional(n); at >= 0 {
			return i.NetworkInterfaces[at]
		}
		return NetworkInterface{}
	}
	first := NetworkInterface{Network: n, Subnet: i.Subnet}
	for _, a := range i.Addresses {
		if a.Type == AddressInternal {
			first.Addresses = append(first.Addresses, a.Address)
		}
	}
	return first
}

// AttachNetwork attaches an instance to an additional network. The call is idempotent: it changes
// nothing if the instance already has the requested addresses.
type AttachNetwork struct {
	Network NetworkID `json:"network" maxLength:"128" doc:"Id of a network of the instance's project" example:"net-000002"`
	Subnet  SubnetID  `json:"subnet,omitempty" maxLength:"128" doc:"Id of a subnet of the network; absent for a subnet that serves the instance's zone" example:"subnet-000002"`
	Address string    `json:"address,omitempty" doc:"Address in the subnet; absent for the lowest free address" example:"10.10.1.7"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r AttachNetwork) Validate() error {
	var c checks
	c.reference("network", string(r.Network))
	c.optionalReference("subnet", string(r.Subnet))
	if r.Address != "" {
		c.ip("address", r.Address)
	}
	return c.err()
}

// Matches reports whether the instance already has the requested addresses.
func (r AttachNetwork) Matches(i Instance) bool {
	have := i.InterfaceIn(r.Network)
	if have.Network != r.Network || r.Subnet != "" && r.Subnet != have.Subnet {
		return false
	}
	ip, err := netip.ParseAddr(r.Address)
	return r.Address == "" || err == nil && slices.Contains(have.Addresses, ip.String())
}

// DetachNetwork releases the addresses of an instance in an additional network. The call is
// idempotent: it changes nothing if the instance is not in the network.
type DetachNetwork struct {
	Network NetworkID `json:"network" maxLength:"128" doc:"Id of an additional network of the instance" example:"net-000002"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r DetachNetwork) Validate() error {
	var c checks
	c.reference("network", string(r.Network))
	return c.err()
}
