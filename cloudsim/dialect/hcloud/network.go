package hcloud

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelGateway is the label with the gateway of a route. The gateway is the address of the next
// hop. After the deletion of the next hop, only this label contains the address.
const labelGateway = dialect.LabelPrefix + "gateway"

// networkParts contains the resources that an answer about networks needs.
type networkParts struct {
	subnets       []cloudsim.Subnet
	routes        []cloudsim.Route
	instances     []cloudsim.Instance
	loadBalancers []cloudsim.LoadBalancer
	regions       []cloudsim.Region
}

// partsOf reads the resources that describe the network with the given id. If the id is "", partsOf
// reads the resources for all networks.
func partsOf(r *dialect.Request, of cloudsim.NetworkID) (p networkParts, err error) {
	o := cloudsim.ListOptions{Network: of}
	ctx := r.Context()
	if p.subnets, _, err = cloudsim.All(ctx, r.Cloud.ListSubnets, o); err != nil {
		return p, err
	}
	if p.routes, _, err = cloudsim.All(ctx, r.Cloud.ListRoutes, o); err != nil {
		return p, err
	}
	if p.instances, _, err = cloudsim.All(ctx, r.Cloud.ListInstances, o); err != nil {
		return p, err
	}
	if p.loadBalancers, _, err = cloudsim.All(ctx, r.Cloud.ListLoadBalancers, cloudsim.ListOptions{}); err != nil {
		return p, err
	}
	p.regions, _, err = cloudsim.All(ctx, r.Cloud.ListRegions, cloudsim.ListOptions{})
	return p, err
}

// networkOf returns the network n in Hetzner's format. The parameter p can also contain the parts
// of other networks, but the result contains only the parts of n. If a subnet belongs to all
// regions, its network zone is the cloud's first region.
func networkOf(n cloudsim.Network, p networkParts) network {
	out := network{
		ID: dialect.Number(n.ID), Name: dialect.OtherName(n.Meta), Created: n.CreatedAt, IPRange: n.IPv4,
		Subnets: []networkSubnet{}, Routes: []networkRoute{}, Servers: []int64{}, LoadBalancers: []int64{}, Labels: dialect.Visible(n.Labels),
		Protection: protection{protected(n.Meta)},
	}
	for _, s := range p.subnets {
		if s.Network != n.ID || s.State == cloudsim.SubnetDeleting {
			continue
		}
		zone := s.Region
		if zone == "" && len(p.regions) > 0 {
			zone = p.regions[0].Name
		}
		out.Subnets = append(out.Subnets, networkSubnet{Type: "cloud", IPRange: s.IPv4, NetworkZone: zone, Gateway: s.Gateway})
	}
	addresses := map[cloudsim.InstanceID]string{}
	for _, i := range p.instances {
		if isPrivate(i, n.ID) {
			addresses[i.ID] = addressIn(i, n.ID)
			out.Servers = append(out.Servers, dialect.Number(i.ID))
		}
	}
	for _, t := range p.routes {
		if t.Network == n.ID && t.State != cloudsim.RouteDeleting {
			// The label contains the gateway from the request that created the route. If a client
			// created the route without this dialect, the route does not have this label. In this
			// case, the gateway is the next hop's address, or 0.0.0.0 if this address is unknown.
			gateway := cmp.Or(t.Labels[labelGateway], addresses[t.NextHop], "0.0.0.0")
			out.Routes = append(out.Routes, networkRoute{Destination: t.Destination, Gateway: gateway})
		}
	}
	for _, l := range p.loadBalancers {
		if l.Labels[labelNetwork] == string(n.ID) {
			out.LoadBalancers = append(out.LoadBalancers, dialect.Number(l.ID))
		}
	}
	return out
}

func networksWithParts(r *dialect.Request, all []cloudsim.Network) ([]network, error) {
	of := cloudsim.NetworkID("")
	if len(all) == 1 {
		of = all[0].ID
	}
	p, err := partsOf(r, of)
	if err != nil {
		return nil, err
	}
	out := make([]network, 0, len(all))
	for _, n := range all {
		out = append(out, networkOf(n, p))
	}
	return out, nil
}

func findNetwork(r *dialect.Request) (cloudsim.Network, error) {
	id, err := id[cloudsim.NetworkID](r, prefixNetwork)
	if err != nil {
		return cloudsim.Network{}, err
	}
	return r.Cloud.GetNetwork(r.Context(), id)
}

func showNetwork(r *dialect.Request, status int, n cloudsim.Network) (int, any, error) {
	all, err := networksWithParts(r, []cloudsim.Network{n})
	if err != nil {
		return 0, nil, err
	}
	return status, map[string]any{"network": all[0]}, nil
}

func getNetwork(r *dialect.Request) (int, any, error) {
	n, err := findNetwork(r)
	if err != nil {
		return 0, nil, err
	}
	return showNetwork(r, http.StatusOK, n)
}

type newNetwork struct {
	Name                  string             `json:"name"`
	IPRange               string             `json:"ip_range"`
	Subnets               []networkSubnet    `json:"subnets"`
	Routes                []networkRoute     `json:"routes"`
	Labels                *map[string]string `json:"labels"`
	ExposeRoutesToVSwitch bool               `json:"expose_routes_to_vswitch"`
}

func createNetwork(r *dialect.Request) (int, any, error) {
	if err := authenticate(r); err != nil {
		return 0, nil, err
	}
	var c newNetwork
	if err := r.Decode(&c); err != nil {
		return 0, nil, err
	}
	switch {
	case len(c.Routes) > 0:
		return 0, nil, dialect.Unsupported{What: "a new network with routes", Why: "add routes after the creation of their gateways"}
	case c.ExposeRoutesToVSwitch:
		return 0, nil, dialect.Unsupported{What: "expose_routes_to_vswitch"}
	}
	req := cloudsim.CreateNetwork{IPv4: c.IPRange}
	var err error
	if req.Name, req.Labels, err = newName(r, c.Name, c.Labels); err != nil {
		return 0, nil, err
	}
	for i, s := range c.Subnets {
		if err := checkSubnet(fmt.Sprintf("subnets[%d].", i), s); err != nil {
			return 0, nil, err
		}
	}
	n, err := r.Cloud.CreateNetwork(r.Context(), req)
	if err != nil {
		return 0, nil, err
	}
	r = retrying(r)
	status, answer, err := completeNetwork(r, n, c.Subnets)
	if err != nil {
		discardNetwork(r, n.ID)
	}
	return status, answer, err
}

// completeNetwork waits until the new network n exists. Then it creates the subnets, waits until
// they exist, and returns the answer. The client cannot wait for the subnets itself, because the
// answer contains no action.
func completeNetwork(r *dialect.Request, n cloudsim.Network, subnets []networkSubnet) (status int, answer any, err error) {
	if n.State == cloudsim.NetworkCreating {
		if n, err = finishThen(r, n.Operation, n.ID, r.Cloud.GetNetwork); err != nil {
			return 0, nil, err
		}
	}
	for _, s := range subnets {
		made, err := r.Cloud.CreateSubnet(r.Context(), subnetRequest(r, n, s))
		if err != nil {
			return 0, nil, err
		}
		if err := finish(r, made.Operation); err != nil {
			return 0, nil, err
		}
	}
	return showNetwork(r, http.StatusCreated, n)
}

// discardNetwork deletes a new network after an error of completeNetwork, because the client does
// not know this network. It deletes the network even if the client has already disconnected.
func discardNetwork(r *dialect.Request, id cloudsim.NetworkID) {
	detachedReq, cancel := detached(r)
	defer cancel()
	all, _, err := cloudsim.All(detachedReq.Context(), detachedReq.Cloud.ListSubnets, cloudsim.ListOptions{Network: id})
	if err == nil {
		_ = removeNetwork(detachedReq, id, networkParts{subnets: all}) // the answer contains the error of the creation
	}
}

func updateNetwork(r *dialect.Request) (int, any, error) {
	n, err := findNetwork(r)
	if err != nil {
		return 0, nil, err
	}
	var u struct {
		updateResource
		ExposeRoutesToVSwitch bool `json:"expose_routes_to_vswitch"`
	}
	if err := r.Decode(&u); err != nil {
		return 0, nil, err
	}
	if u.ExposeRoutesToVSwitch {
		return 0, nil, dialect.Unsupported{What: "expose_routes_to_vswitch"}
	}
	all, err := u.newLabels(n.Meta)
	if err != nil {
		return 0, nil, err
	}
	if n, err = r.Cloud.UpdateNetwork(r.Context(), n.ID, cloudsim.UpdateNetwork{Labels: all, NetworkSpec: n.NetworkSpec}, n.Revision); err != nil {
		return 0, nil, err
	}
	return showNetwork(r, http.StatusOK, n)
}

// deleteNetwork deletes the routes and subnets of a network, and then the network, as Hetzner's API
// does. It returns an error if the network has servers or load balancers.
func deleteNetwork(r *dialect.Request) (int, any, error) {
	n, err := findNetwork(r)
	if err != nil {
		return 0, nil, err
	}
	if err := checkDeletable(n.Meta); err != nil {
		return 0, nil, err
	}
	p, err := partsOf(r, n.ID)
	if err != nil {
		return 0, nil, err
	}
	if len(p.instances) > 0 || len(networkOf(n, p).LoadBalancers) > 0 {
		return 0, nil, coded("resource_in_use", "the network has servers or load balancers: delete or detach them first")
	}
	return http.StatusNoContent, nil, removeNetwork(r, n.ID, p)
}

// removeNetwork deletes the routes and subnets in p, and then the network. It waits until these
// deletions end.
func removeNetwork(r *dialect.Request, id cloudsim.NetworkID, p networkParts) error {
	for _, t := range p.routes {
		if d, err := r.Cloud.DeleteRoute(r.Context(), t.ID); err != nil {
			return err
		} else if err := finish(r, d.Operation); err != nil {
			return err
		}
	}
	for _, s := range p.subnets {
		if d, err := r.Cloud.DeleteSubnet(r.Context(), s.ID); err != nil {
			return err
		} else if err := finish(r, d.Operation); err != nil {
			return err
		}
	}
	d, err := r.Cloud.DeleteNetwork(r.Context(), id)
	if err != nil {
		return err
	}
	return finish(r, d.Operation)
}

// finish waits until an operation ends, with or without success. If the answer of a call contains
// no action, the client cannot wait for the operation. So the call itself waits before it answers.
// For example, after the answer to a deletion, the client can create a resource with the same name
// at once.
func finish(r *dialect.Request, id cloudsim.OperationID) error {
	_, err := retrying(r).Cloud.WaitOperation(r.Context(), id)
	return err
}

func finishThen[T, ID any](r *dialect.Request, operation cloudsim.OperationID, id ID, get func(context.Context, ID) (T, error)) (v T, err error) {
	if err := finish(r, operation); err != nil {
		return v, err
	}
	return get(r.Context(), id)
}

// checkSubnet returns an error if a subnet in a request has an unsupported type or no range. The
// parameter at is the prefix of the field name in the error.
func checkSubnet(at string, s networkSubnet) error {
	switch {
	case s.Type != "cloud" && s.Type != "server":
		return dialect.Unsupported{What: fmt.Sprintf("a subnet of the type %.20q", s.Type), Why: "use the type cloud"}
	case s.IPRange == "":
		return cloudsim.InvalidField(at+"ip_range", "is required")
	}
	return nil
}

// subnetRequest returns the request to this cloud for a new subnet. The name of the subnet contains
// the range of addresses, because Hetzner's subnets have no name.
func subnetRequest(r *dialect.Request, n cloudsim.Network, s networkSubnet) cloudsim.CreateSubnet {
	return cloudsim.CreateSubnet{
		Name: rangeName(n.ID, s.IPRange), Network: n.ID, Region: s.NetworkZone, IPv4: s.IPRange, Labels: map[string]string{labelRequest: r.ID},
	}
}

func rangeName(n cloudsim.NetworkID, ip string) string {
	return dialect.Name(string(n) + "-" + strings.NewReplacer(".", "-", "/", "-", ":", "-").Replace(ip))
}

// networkCall returns a call that changes a part of a network and answers with an action.
// The call decodes the body into a value of type T. The function fn changes the part, and
// returns its metadata. The result busy is true if the change has not ended yet.
func networkCall[T any](command string, fn func(*dialect.Request, cloudsim.Network, T) (m cloudsim.Meta, busy bool, err error)) call {
	return func(r *dialect.Request) (int, any, error) {
		n, err := findNetwork(r)
		if err != nil {
			return 0, nil, err
		}
		var in T
		if err := r.Decode(&in); err != nil {
			return 0, nil, err
		}
		m, busy, err := fn(r, n, in)
		if err != nil {
			return 0, nil, err
		}
		return actionStarted(lastAction(m, command, busy, resource{dialect.Number(n.ID), "network"}))
	}
}

func addSubnet(r *dialect.Request, n cloudsim.Network, s networkSubnet) (m cloudsim.Meta, busy bool, err error) {
	if err := checkSubnet("", s); err != nil {
		return m, false, err
	}
	if n.State == cloudsim.NetworkCreating {
		return m, false, errLocked("network", string(n.State))
	}
	made, err := r.Cloud.CreateSubnet(r.Context(), subnetRequest(r, n, s))
	return made.Meta, made.State == cloudsim.SubnetCreating, err
}

func deleteSubnet(r *dialect.Request, n cloudsim.Network, in struct {
	IPRange string `json:"ip_range"`
},
) (m cloudsim.Meta, busy bool, err error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListSubnets, cloudsim.ListOptions{Network: n.ID})
	if err != nil {
		return m, false, err
	}
	i := slices.IndexFunc(all, func(s cloudsim.Subnet) bool {
		return s.IPv4 == in.IPRange && s.State != cloudsim.SubnetDeleting
	})
	if i < 0 {
		return m, false, cloudsim.Errorf(cloudsim.NotFound, "the network has no subnet %.80q", in.IPRange)
	}
	gone, err := r.Cloud.DeleteSubnet(r.Context(), all[i].ID)
	return gone.Meta, gone.State == cloudsim.SubnetDeleting, err
}

// instanceAt returns the id of the server with the given address in a private network. If no server
// has this address, instanceAt returns Invalid.
func instanceAt(r *dialect.Request, n cloudsim.NetworkID, ip string) (cloudsim.InstanceID, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstances, cloudsim.ListOptions{Network: n})
	if err != nil {
		return "", err
	}
	for _, i := range all {
		if isPrivate(i, n) && addressIn(i, n) == ip {
			return i.ID, nil
		}
	}
	return "", cloudsim.InvalidField("gateway", fmt.Sprintf("must be the address of a server in the network, got %.80q", ip))
}

func addRoute(r *dialect.Request, n cloudsim.Network, in networkRoute) (m cloudsim.Meta, busy bool, err error) {
	if _, err := netip.ParsePrefix(in.Destination); err != nil {
		return m, false, cloudsim.InvalidField("destination", fmt.Sprintf("must be a CIDR such as 10.1.0.0/16, got %.80q", in.Destination))
	}
	hop, err := instanceAt(r, n.ID, in.Gateway)
	if err != nil {
		return m, false, err
	}
	t, err := r.Cloud.CreateRoute(r.Context(), cloudsim.CreateRoute{
		Name: rangeName(n.ID, in.Destination), Network: n.ID, Destination: in.Destination, NextHop: hop, Labels: map[string]string{labelRequest: r.ID, labelGateway: in.Gateway},
	})
	return t.Meta, t.State == cloudsim.RouteCreating, err
}

func deleteRoute(r *dialect.Request, n cloudsim.Network, in networkRoute) (m cloudsim.Meta, busy bool, err error) {
	p, err := partsOf(r, n.ID)
	if err != nil {
		return m, false, err
	}
	shown := networkOf(cloudsim.Network{ID: n.ID}, networkParts{routes: p.routes, instances: p.instances}).Routes
	if !slices.Contains(shown, in) {
		return m, false, cloudsim.Errorf(cloudsim.NotFound, "the network has no route to %.80q with the gateway %.80q", in.Destination, in.Gateway)
	}
	i := slices.IndexFunc(p.routes, func(t cloudsim.Route) bool {
		return t.Destination == in.Destination && t.State != cloudsim.RouteDeleting
	})
	gone, err := r.Cloud.DeleteRoute(r.Context(), p.routes[i].ID)
	return gone.Meta, gone.State == cloudsim.RouteDeleting, err
}
