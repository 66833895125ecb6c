package engine

import (
	"context"
	"net/netip"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// AttachNetwork attaches an instance to an additional network. The instance gets its addresses in
// this network immediately. AttachNetwork returns Conflict if the instance is terminating, or if
// the instance is already in this network with another subnet or address. It returns Exhausted if
// the instance has cloudsim.MaxNetworkInterfaces additional networks, or if the subnet has no free
// address.
func (e *Engine) AttachNetwork(ctx context.Context, id cloudsim.InstanceID, req cloudsim.AttachNetwork) (i cloudsim.Instance, err error) {
	if err := req.Validate(); err != nil {
		return i, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		switch {
		case i.State == cloudsim.InstanceTerminating:
			return cloudsim.Errorf(cloudsim.Conflict, "cannot attach instance %s to a network: the instance is in state %s", id, i.State)
		case req.Matches(i):
			return nil
		case i.Network == req.Network:
			return cloudsim.Errorf(cloudsim.Conflict, "instance %s is already in network %s, its first network, with the addresses %v: the subnet and the addresses in the first network cannot change", id, req.Network, i.InterfaceIn(req.Network).Addresses)
		case i.IsIn(req.Network):
			return cloudsim.Errorf(cloudsim.Conflict, "instance %s is already in network %s, with the addresses %v: detach the instance from this network first", id, req.Network, i.InterfaceIn(req.Network).Addresses)
		case len(i.NetworkInterfaces) >= cloudsim.MaxNetworkInterfaces:
			return cloudsim.Errorf(cloudsim.Exhausted, "instance %s has %d additional networks, which is the maximum: detach it from one of them", id, len(i.NetworkInterfaces))
		}
		n, s, err := e.placeInstance(tx, i.Project, i.Region, cloudsim.CreateInstance{Zone: i.Zone, Network: req.Network, Subnet: req.Subnet})
		if err != nil {
			return err
		}
		ips, err := takeAddresses(tx, s, req.Address)
		if err != nil {
			return err
		}
		f := cloudsim.NetworkInterface{Network: n.ID, Subnet: s.ID}
		for _, a := range ips {
			f.Addresses = append(f.Addresses, a.Address)
		}
		i.NetworkInterfaces = append(i.NetworkInterfaces, f)
		return putInterfaces(tx, &i)
	})
	return i, err
}

// DetachNetwork immediately releases the addresses of an instance in an additional network. Routes
// of this network that have the instance as their next hop get the state blackhole. DetachNetwork
// returns Conflict for the first network of the instance. It does not change an instance that is
// not in the network.
func (e *Engine) DetachNetwork(ctx context.Context, id cloudsim.InstanceID, req cloudsim.DetachNetwork) (i cloudsim.Instance, err error) {
	if err := req.Validate(); err != nil {
		return i, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		if i.Network == req.Network {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot detach instance %s from network %s: an instance cannot leave its first network", id, req.Network)
		}
		at := slices.IndexFunc(i.NetworkInterfaces, func(f cloudsim.NetworkInterface) bool { return f.Network == req.Network })
		if at < 0 {
			return nil
		}
		f := i.NetworkInterfaces[at]
		if err := giveSubnetAddresses(tx, f.Subnet, f.Addresses); err != nil {
			return err
		}
		i.NetworkInterfaces = slices.Delete(i.NetworkInterfaces, at, at+1)
		return putInterfaces(tx, &i)
	})
	return i, err
}

func putInterfaces(tx *store.Tx, i *cloudsim.Instance) error {
	if err := instances.Put(tx, i); err != nil {
		return err
	}
	return reroute(tx, i)
}

func subnetsOf(i *cloudsim.Instance) []string {
	all := []string{string(i.Subnet)}
	for _, f := range i.NetworkInterfaces {
		all = append(all, string(f.Subnet))
	}
	return all
}

func giveSubnetAddresses(tx *store.Tx, id cloudsim.SubnetID, ips []string) error {
	s, err := subnets.Get(tx, string(id))
	if err != nil {
		return err
	}
	for _, a := range ips {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			continue
		}
		for _, r := range s.Ranges() {
			if ip == cloudsim.GatewayOf(r) {
				continue // an older version, which did not reserve gateways, assigned this address
			}
			if err := giveIP(tx, r, ip); err != nil {
				return err
			}
		}
	}
	return nil
}
