package hcloud

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelPublicOnly is the label of a server with a hidden first network: the dialect does not show
// this network to clients. The dialect adds the label if a client creates a server without
// networks, or detaches a server from the default network. The label is necessary because an
// instance of this cloud cannot leave its first network.
const labelPublicOnly = dialect.LabelPrefix + "public-only"

// privateNetworks returns the networks that the dialect shows as the server's private networks.
func privateNetworks(i cloudsim.Instance) (all []cloudsim.NetworkID) {
	if i.Network != "" && i.Labels[labelPublicOnly] == "" {
		all = append(all, i.Network)
	}
	for _, f := range i.NetworkInterfaces {
		all = append(all, f.Network)
	}
	return all
}

func isPrivate(i cloudsim.Instance, n cloudsim.NetworkID) bool {
	return i.IsIn(n) && (i.Network != n || i.Labels[labelPublicOnly] == "")
}

func addressIn(i cloudsim.Instance, n cloudsim.NetworkID) string {
	if all := i.InterfaceIn(n).Addresses; len(all) > 0 {
		return all[0]
	}
	return ""
}

// serverNetwork contains the field that the attach request and the detach request have in common.
type serverNetwork struct {
	Network int64 `json:"network"`
}

func (s serverNetwork) number() int64 { return s.Network }

// serverNetworkCall returns a call that changes the networks of a server and answers with an
// action. The call decodes the body into a value of type T. The cloud makes the change at once, so
// the action has already ended. While another action runs on the server, the call returns the error
// of errLocked.
func serverNetworkCall[T interface{ number() int64 }](command string, fn func(*dialect.Request, cloudsim.Instance, cloudsim.NetworkID, T) (cloudsim.Instance, error)) call {
	return func(r *dialect.Request) (int, any, error) {
		i, err := getInstance(r)
		if err != nil {
			return 0, nil, err
		}
		var in T
		if err := r.Decode(&in); err != nil {
			return 0, nil, err
		}
		if instanceBusy(i.State) {
			return 0, nil, errLocked("server", serverStatus[i.State])
		}
		if i, err = fn(r, i, dialect.ID[cloudsim.NetworkID](prefixNetwork, in.number()), in); err != nil {
			return 0, nil, err
		}
		return actionStarted(lastAction(i.Meta, command, false, resource{dialect.Number(i.ID), "server"}, resource{in.number(), "network"}))
	}
}

type attachServer struct {
	serverNetwork
	IP       string   `json:"ip"`
	IPRange  string   `json:"ip_range"`
	AliasIPs []string `json:"alias_ips"`
}

func attachServerToNetwork(r *dialect.Request, i cloudsim.Instance, n cloudsim.NetworkID, in attachServer) (cloudsim.Instance, error) {
	switch {
	case len(in.AliasIPs) > 0:
		return i, dialect.Unsupported{What: "the field alias_ips", Why: noAliasIPs}
	case isPrivate(i, n):
		return i, coded("server_already_attached", "the server is already attached to the network")
	case i.Network == n && in.IP != "" && in.IP != addressIn(i, n):
		return i, dialect.Unsupported{What: "another address in the first network of the server", Why: "omit ip: the address is " + addressIn(i, n)}
	case i.Network == n && in.IPRange != "" && !contains(in.IPRange, addressIn(i, n)):
		return i, dialect.Unsupported{What: "another range in the first network of the server", Why: "omit ip_range: the address is " + addressIn(i, n)}
	case i.Network == n:
		return setPublicOnly(r, i, false)
	}
	return attachInstance(r, i, n, in)
}

func contains(ipRange, ip string) bool {
	p, rangeErr := netip.ParsePrefix(ipRange)
	a, err := netip.ParseAddr(ip)
	return rangeErr == nil && err == nil && p.Contains(a)
}

// attachInstance attaches an instance to an additional network. Its errors have the field names and
// the codes of Hetzner's API.
func attachInstance(r *dialect.Request, i cloudsim.Instance, n cloudsim.NetworkID, in attachServer) (cloudsim.Instance, error) {
	if len(i.NetworkInterfaces) >= cloudsim.MaxNetworkInterfaces {
		return i, cloudsim.Errorf(cloudsim.Exhausted, "a server can be attached to at most %d networks after its creation", cloudsim.MaxNetworkInterfaces)
	}
	subnets, creating, err := findSubnets(r, i, n, in)
	if err != nil {
		return i, err
	}
	isFull := func(err error) bool {
		e, ok := errors.AsType[*cloudsim.Error](err)
		return ok && e.Kind == cloudsim.Exhausted && e.RetryAfter == 0
	}
	id := i.ID
	for _, subnet := range subnets {
		if i, err = r.Cloud.AttachNetwork(r.Context(), id, cloudsim.AttachNetwork{Network: n, Subnet: subnet, Address: in.IP}); !isFull(err) {
			break
		}
	}
	switch {
	case isFull(err) && creating:
		return i, errLocked("subnet", string(cloudsim.SubnetCreating))
	case isFull(err):
		return i, coded("no_subnet_available", "all addresses of the matching subnets are in use: create another subnet, or remove a server from the network")
	case errors.Is(err, cloudsim.Conflict) && in.IP != "":
		if taken, listErr := isTaken(r, n, in.IP); !taken {
			return i, cmp.Or(listErr, err)
		}
		return i, coded("ip_not_available", fmt.Sprintf("another server has the address %.80q", in.IP))
	case errors.Is(err, cloudsim.Invalid) && in.IP != "":
		return i, cloudsim.InvalidField("ip", fmt.Sprintf("must not be the first address, the last address or the gateway of the subnet, got %.80q", in.IP))
	}
	return i, err
}

// isTaken reports whether an instance has the given address in a network.
func isTaken(r *dialect.Request, n cloudsim.NetworkID, ip string) (bool, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstances, cloudsim.ListOptions{Network: n})
	return slices.ContainsFunc(all, func(i cloudsim.Instance) bool { return addressIn(i, n) == ip }), err
}

// findSubnets returns the available subnets of the network n that serve the zone of instance i. If
// the request contains a range, the subnets have this range. If the request contains an address,
// the subnets contain this address. If no subnet matches, findSubnets returns an error. The result
// isCreating is true if the cloud is still creating another subnet that matches.
func findSubnets(r *dialect.Request, i cloudsim.Instance, n cloudsim.NetworkID, in attachServer) (ids []cloudsim.SubnetID, isCreating bool, err error) {
	if _, err := r.Cloud.GetNetwork(r.Context(), n); errors.Is(err, cloudsim.NotFound) {
		return nil, false, errUnknown("network", in.Network)
	} else if err != nil {
		return nil, false, err
	}
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListSubnets, cloudsim.ListOptions{Network: n})
	if err != nil {
		return nil, false, err
	}
	ip, _ := netip.ParseAddr(in.IP) // no subnet contains an invalid address
	for _, s := range all {
		p, err := netip.ParsePrefix(s.IPv4)
		switch {
		case err != nil || !s.Serves(i.Region, i.Zone) || in.IPRange != "" && in.IPRange != s.IPv4 || in.IP != "" && !p.Contains(ip):
		case s.State == cloudsim.SubnetAvailable:
			ids = append(ids, s.ID)
		case s.State == cloudsim.SubnetCreating:
			isCreating = true
		}
	}
	switch {
	case len(ids) > 0:
		return ids, isCreating, nil
	case isCreating:
		return nil, false, errLocked("subnet", string(cloudsim.SubnetCreating))
	case in.IP != "":
		return nil, false, cloudsim.InvalidField("ip", fmt.Sprintf("must be an address in a subnet that serves the location of the server, got %.80q", in.IP))
	case in.IPRange != "":
		return nil, false, cloudsim.InvalidField("ip_range", fmt.Sprintf("must be the range of a subnet that serves the location of the server, got %.80q", in.IPRange))
	}
	return nil, false, coded("no_subnet_available", "the network has no subnet for the location of the server: add a subnet first")
}

func detachServerFromNetwork(r *dialect.Request, i cloudsim.Instance, n cloudsim.NetworkID, in serverNetwork) (cloudsim.Instance, error) {
	switch {
	case !isPrivate(i, n):
		return i, cloudsim.Errorf(cloudsim.NotFound, "the server is not attached to the network %d", in.Network)
	case i.Network == n:
		return leaveFirstNetwork(r, i)
	}
	return r.Cloud.DetachNetwork(r.Context(), i.ID, cloudsim.DetachNetwork{Network: n})
}

// leaveFirstNetwork handles the request to detach an instance from its first network. An instance
// of this cloud cannot leave its first network, so leaveFirstNetwork hides this network. It can
// hide only the default network. For any other first network, it returns Unsupported.
func leaveFirstNetwork(r *dialect.Request, i cloudsim.Instance) (cloudsim.Instance, error) {
	n, err := r.Cloud.GetNetwork(r.Context(), i.Network)
	switch {
	case err != nil:
		return i, err
	case !n.Default:
		return i, dialect.Unsupported{What: "detaching a server from its first network", Why: "create the server without networks, and then attach it"}
	}
	return setPublicOnly(r, i, true)
}

func setPublicOnly(r *dialect.Request, i cloudsim.Instance, on bool) (cloudsim.Instance, error) {
	labels := dialect.CloneLabels(i.Labels)
	if labels[labelPublicOnly] = "true"; !on {
		delete(labels, labelPublicOnly)
	}
	return r.Cloud.UpdateInstance(r.Context(), i.ID, cloudsim.UpdateInstance{Labels: labels}, i.Revision)
}
