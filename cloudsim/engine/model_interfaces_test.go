package engine_test

import (
	"cmp"
	"net/netip"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// moreOf returns the first address of an instance in each of its additional networks. The keys of
// the map are subnet ids. It returns nil if the instance has no additional network.
func moreOf(i cloudsim.Instance) map[string]string {
	var more map[string]string
	for _, f := range i.NetworkInterfaces {
		if more == nil {
			more = map[string]string{}
		}
		more[string(f.Subnet)] = f.Addresses[0]
	}
	return more
}

// interfaceIn returns the subnet of the instance's address in the given additional network. It
// returns "" if the instance has no address in this network.
func (w *world) interfaceIn(i *vm, network string) string {
	for subnet := range i.More {
		if w.subnets[subnet].Network == network {
			return subnet
		}
	}
	return ""
}

// isHost reports whether an instance in a subnet with the IPv4 range ipRange can have the address.
func isHost(ipRange, address string) bool {
	in, ip := netip.MustParsePrefix(ipRange), netip.MustParseAddr(address)
	return in.Contains(ip) && in.Contains(ip.Next()) && ip != in.Addr() && ip != cloudsim.GatewayOf(in)
}

func (w *world) attachNetwork(t *rapid.T) {
	id, subnet := randomID(t, w.instances), randomID(t, w.subnets)
	i, s := w.instances[id], w.subnets[subnet]
	req := cloudsim.AttachNetwork{
		Network: "none-000001", Subnet: cloudsim.SubnetID(subnet),
		Address: rapid.SampledFrom([]string{"", "", "10.1.0.1", "10.1.0.3", "10.1.0.7", "10.2.0.3"}).Draw(t, "address"),
	}
	if s != nil {
		req.Network = cloudsim.NetworkID(s.Network)
	}
	_, err := w.e.AttachNetwork(w.ctx, cloudsim.InstanceID(id), req)
	switch {
	case i == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case i.State == "terminating":
		mustAgree(t, err, cloudsim.Conflict)
	case s != nil && (i.Subnet == subnet && (req.Address == "" || req.Address == i.IP) || i.More[subnet] != "" && (req.Address == "" || req.Address == i.More[subnet])):
		mustAgree(t, err, nil)
	case s != nil && (w.subnets[i.Subnet].Network == s.Network || w.interfaceIn(i, s.Network) != ""):
		mustAgree(t, err, cloudsim.Conflict)
	case s == nil, s.Zone != "" && s.Zone != i.Zone:
		mustAgree(t, err, cloudsim.Invalid)
	case s.State != "available":
		mustAgree(t, err, cloudsim.Conflict)
	case req.Address != "" && !isHost(s.Range, req.Address):
		mustAgree(t, err, cloudsim.Invalid)
	case req.Address != "" && w.heldAddresses()[req.Address]:
		mustAgree(t, err, cloudsim.Conflict)
	default:
		address := cmp.Or(req.Address, w.freeIn(subnet))
		if address == "" {
			mustAgree(t, err, cloudsim.Exhausted)
			return
		}
		mustAgree(t, err, nil)
		if i.More == nil {
			i.More = map[string]string{}
		}
		i.More[subnet] = address
	}
}

func (w *world) detachNetwork(t *rapid.T) {
	id, network := randomID(t, w.instances), randomID(t, w.networks)
	i := w.instances[id]
	_, err := w.e.DetachNetwork(w.ctx, cloudsim.InstanceID(id), cloudsim.DetachNetwork{Network: cloudsim.NetworkID(network)})
	switch {
	case i == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case w.subnets[i.Subnet].Network == network:
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		delete(i.More, w.interfaceIn(i, network))
		if len(i.More) == 0 {
			i.More = nil
		}
	}
}
