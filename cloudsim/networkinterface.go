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

// AddressesIn returns the instance's internal addresses in the given network, IPv4 first. It
// returns no addresses if the instance is not in this network.
func (i Instance) AddressesIn(n NetworkID) (all []string) {
	if i.Network == n {
		for _, a := range i.Addresses {
			if a.Type == AddressInternal {
				all = append(all, a.Address)
			}
		}
		return all
	}
	for _, f := range i.NetworkInterfaces {
		if f.Network == n {
			return f.Addresses
		}
	}
	return nil
}

// IsIn reports whether the instance has addresses in the given network.
func (i Instance) IsIn(n NetworkID) bool { return len(i.AddressesIn(n)) > 0 }

// subnetIn returns the subnet with the instance's addresses in the given network. It returns "" if
// the instance is not in this network.
func (i Instance) subnetIn(n NetworkID) SubnetID {
	if i.Network == n {
		return i.Subnet
	}
	at := slices.IndexFunc(i.NetworkInterfaces, func(f NetworkInterface) bool { return f.Network == n })
	if at < 0 {
		return ""
	}
	return i.NetworkInterfaces[at].Subnet
}

// AttachNetwork requests addresses for an instance in an additional network. The call is
// idempotent: it changes nothing if the instance already has these addresses.
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
	if !i.IsIn(r.Network) || r.Subnet != "" && r.Subnet != i.subnetIn(r.Network) {
		return false
	}
	ip, err := netip.ParseAddr(r.Address)
	return r.Address == "" || err == nil && slices.Contains(i.AddressesIn(r.Network), ip.String())
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
