package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var subnets = store.Table[cloudsim.Subnet]{
	Kind: cloudsim.KindSubnet, Prefix: "subnet",
	ID:    func(s *cloudsim.Subnet) string { return string(s.ID) },
	Meta:  func(s *cloudsim.Subnet) *cloudsim.Meta { return &s.Meta },
	Uses:  store.One[cloudsim.Subnet](cloudsim.QuotaSubnets),
	Index: map[string]func(*cloudsim.Subnet) []string{byNetwork: func(s *cloudsim.Subnet) []string { return []string{string(s.Network)} }},
}

// CreateSubnet begins to create a subnet. It returns Conflict if a range of the
// subnet overlaps a range of another subnet of the network.
func (e *Engine) CreateSubnet(ctx context.Context, req cloudsim.CreateSubnet) (s cloudsim.Subnet, err error) {
	if err := req.Validate(); err != nil {
		return s, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		s, err = idempotent(tx, call, subnets, req, func() (cloudsim.Subnet, error) { return e.subnetByName(tx, call, req) })
		return err
	})
	return s, err
}

// subnetByName returns the existing subnet that matches the request, or creates
// a subnet.
func (e *Engine) subnetByName(tx *store.Tx, call Call, req cloudsim.CreateSubnet) (s cloudsim.Subnet, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return s, err
	}
	if req.Region, err = regionFor(tx, req.Region, req.Zone); err != nil {
		return s, err
	}
	have, err := subnets.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return e.newSubnet(tx, call, project, req)
	case err != nil:
		return s, err
	case have.State == cloudsim.SubnetDeleting:
		return s, cloudsim.Errorf(cloudsim.Conflict, "the earlier subnet %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	case have.Network != req.Network:
		return s, errNameTaken(cloudsim.KindSubnet, req.Name, string(have.ID), "network "+string(have.Network))
	case have.IPv4 != req.IPv4 || have.IPv6 != req.IPv6:
		return s, errNameTaken(cloudsim.KindSubnet, req.Name, string(have.ID), "other ranges")
	case have.Region != req.Region || have.Zone != req.Zone:
		return s, errNameTaken(cloudsim.KindSubnet, req.Name, string(have.ID), "another region or zone")
	case !sameLabels(have.Labels, req.Labels):
		return s, errNameTaken(cloudsim.KindSubnet, req.Name, string(have.ID), "other labels")
	}
	return have, nil
}

// regionFor checks the region and the zone of a subnet and returns the region. If
// region is "" and the request has a zone, it returns the region of the zone.
func regionFor(tx *store.Tx, region, zone string) (string, error) {
	if zone == "" {
		if region != "" && !regions.Has(tx, region) {
			return "", errUnknownReference("region", region, "see GET /v1/regions")
		}
		return region, nil
	}
	zoneRegion, err := regionOfZone(tx, "zone", zone)
	if err == nil && region != "" && region != zoneRegion {
		err = cloudsim.InvalidField("zone", zone+" is in region "+zoneRegion+", not in region "+region)
	}
	return zoneRegion, err
}

func (e *Engine) newSubnet(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateSubnet) (s cloudsim.Subnet, err error) {
	n, err := usableNetwork(tx, project, req.Network)
	if err != nil {
		return s, err
	}
	if err := req.CheckNetwork(n); err != nil {
		return s, err
	}
	s = cloudsim.Subnet{
		Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels}, Network: n.ID,
		Region: req.Region, Zone: req.Zone, IPv4: req.IPv4, IPv6: req.IPv6, State: cloudsim.SubnetCreating,
	}
	siblings, err := subnets.Lookup(tx, byNetwork, string(n.ID))
	if err != nil {
		return s, err
	}
	for _, other := range siblings {
		for _, mine := range s.Ranges() {
			for _, otherRange := range other.Ranges() {
				if mine.Overlaps(otherRange) {
					return s, cloudsim.Errorf(cloudsim.Conflict, "%s overlaps %s, the range of subnet %s (%s): choose another range", mine, otherRange, other.ID, other.Name)
				}
			}
		}
	}
	if err := e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaSubnets, N: 1}); err != nil {
		return s, err
	}
	id, err := subnets.NextID(tx)
	if err != nil {
		return s, err
	}
	s.ID = cloudsim.SubnetID(id)
	setGateways(&s)
	return s, e.workOnSubnet(tx, call, &s, cloudsim.Create)
}

func setGateways(s *cloudsim.Subnet) {
	s.Gateway, s.GatewayIPv6 = "", ""
	for _, r := range s.Ranges() {
		g := cloudsim.GatewayOf(r)
		switch {
		case !g.IsValid():
		case g.Is4():
			s.Gateway = g.String()
		default:
			s.GatewayIPv6 = g.String()
		}
	}
}

// usableNetwork returns a network of the project. It returns Invalid if the network does not belong
// to the project, and Conflict if the network's state does not permit new resources.
func usableNetwork(tx *store.Tx, project cloudsim.ProjectID, id cloudsim.NetworkID) (cloudsim.Network, error) {
	n, err := networks.Get(tx, string(id))
	switch {
	case errors.Is(err, cloudsim.NotFound) || err == nil && n.Project != project:
		return n, errUnknownReference("network", string(id), "see GET /v1/networks")
	case err != nil:
		return n, err
	case !n.Usable():
		return n, cloudsim.Errorf(cloudsim.Conflict, "cannot add resources to network %s (%s): the network is in state %s", n.ID, n.Name, n.State)
	}
	return n, nil
}

func (e *Engine) workOnSubnet(tx *store.Tx, call Call, s *cloudsim.Subnet, verb cloudsim.Verb) error {
	return beginWork(e, tx, call, subnets, s, verb, e.cfg.Profile.Network, e.settledSubnet)
}

func (e *Engine) settledSubnet(tx *store.Tx, s *cloudsim.Subnet) error {
	if err := s.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, s.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if s.State == cloudsim.SubnetDeleted {
		return subnets.Delete(tx, s)
	}
	return subnets.Put(tx, s)
}

// GetSubnet returns a subnet, or NotFound after the subnet is deleted.
func (e *Engine) GetSubnet(ctx context.Context, id cloudsim.SubnetID) (cloudsim.Subnet, error) {
	return read(ctx, e.core, subnets, string(id))
}

// ListSubnets returns one page of subnets. The filter o.Zone selects the
// subnets that serve only this zone.
func (e *Engine) ListSubnets(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Subnet], error) {
	return listPage(ctx, e.core, subnets, o, func(s *cloudsim.Subnet) string { return s.Zone })
}

// DeleteSubnet begins to delete a subnet and returns the subnet. It does not
// change a subnet that is already in state deleting. DeleteSubnet returns
// Conflict if the subnet belongs to a default network, or if instances are in
// the subnet.
func (e *Engine) DeleteSubnet(ctx context.Context, id cloudsim.SubnetID) (s cloudsim.Subnet, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if s, err = get(tx, call, subnets, string(id)); err != nil || s.State == cloudsim.SubnetDeleting {
			return err
		}
		n, err := networks.Get(tx, string(s.Network))
		if err != nil {
			return err
		}
		if n.Default {
			return cloudsim.Errorf(cloudsim.Conflict, "subnet %s (%s) is the default subnet of its project: delete the project instead", s.ID, s.Name)
		}
		if err := checkUnused(tx, cloudsim.KindSubnet, string(id), instances, bySubnet); err != nil {
			return err
		}
		if err := s.Move(cloudsim.Delete); err != nil {
			return err
		}
		return e.workOnSubnet(tx, call, &s, cloudsim.Delete)
	})
	return s, err
}

// placeInstance returns the network and the subnet of a new instance. If the request names neither,
// placeInstance selects the project's default network.
func (e *Engine) placeInstance(tx *store.Tx, project cloudsim.ProjectID, region string, req cloudsim.CreateInstance) (n cloudsim.Network, s cloudsim.Subnet, err error) {
	if req.Subnet != "" {
		s, err = subnets.Get(tx, string(req.Subnet))
		switch {
		case errors.Is(err, cloudsim.NotFound) || err == nil && s.Project != project:
			return n, s, errUnknownReference("subnet", string(req.Subnet), "see GET /v1/subnets")
		case err != nil:
			return n, s, err
		case req.Network != "" && req.Network != s.Network:
			return n, s, cloudsim.InvalidField("subnet", string(s.ID)+" is in network "+string(s.Network)+", not in network "+string(req.Network))
		case !s.Serves(region, req.Zone):
			return n, s, cloudsim.InvalidField("subnet", string(s.ID)+" serves "+cmp.Or(s.Zone, s.Region)+" and not zone "+req.Zone)
		case s.State != cloudsim.SubnetAvailable:
			return n, s, cloudsim.Errorf(cloudsim.Conflict, "cannot use subnet %s (%s) for an instance: the subnet is in state %s", s.ID, s.Name, s.State)
		}
		n, err = usableNetwork(tx, project, s.Network)
		return n, s, err
	}
	if req.Network == "" {
		n, err = networks.Named(tx, project, cloudsim.DefaultNetwork)
	} else {
		n, err = usableNetwork(tx, project, req.Network)
	}
	if err != nil {
		return n, s, err
	}
	s, err = nearestSubnet(tx, n, region, req.Zone)
	return n, s, err
}

// nearestSubnet searches the available subnets of the network n that serve the zone. It returns the
// subnet that serves the fewest zones. If several subnets serve this number of zones, it returns
// the oldest of these subnets.
func nearestSubnet(tx *store.Tx, n cloudsim.Network, region, zone string) (cloudsim.Subnet, error) {
	all, err := subnets.Lookup(tx, byNetwork, string(n.ID))
	if err != nil {
		return cloudsim.Subnet{}, err
	}
	all = slices.DeleteFunc(all, func(s cloudsim.Subnet) bool {
		return !s.Serves(region, zone) || s.State != cloudsim.SubnetAvailable
	})
	if len(all) == 0 {
		return cloudsim.Subnet{}, cloudsim.InvalidField("network", string(n.ID)+" has no available subnet that serves zone "+zone+": create a subnet with POST /v1/subnets, or wait until the state of an existing subnet is available")
	}
	width := func(s cloudsim.Subnet) int {
		switch {
		case s.Zone != "":
			return 0
		case s.Region != "":
			return 1
		}
		return 2
	}
	return slices.MinFunc(all, func(a, b cloudsim.Subnet) int { return width(a) - width(b) }), nil
}

// takeAddresses assigns to a new instance one address from each range of the subnet. If wanted is
// not "", takeAddresses takes the wanted address from the range that contains it. From every other
// range, takeAddresses takes the lowest free address. It returns Invalid if no range contains the
// wanted address, and Exhausted if a range has no free address.
func takeAddresses(tx *store.Tx, s cloudsim.Subnet, wanted string) ([]cloudsim.InstanceAddress, error) {
	ask, _ := netip.ParseAddr(wanted) // Validate has checked the address, so ask is invalid only if wanted is ""
	if ask.IsValid() && !slices.ContainsFunc(s.Ranges(), func(r netip.Prefix) bool { return r.Contains(ask) }) {
		return nil, cloudsim.InvalidField("address", fmt.Sprintf("is not in subnet %s (%s, %v)", s.ID, s.Name, s.Ranges()))
	}
	var all []cloudsim.InstanceAddress
	for _, r := range s.Ranges() {
		var ip netip.Addr
		var err error
		if ask.IsValid() && r.Contains(ask) {
			ip, err = ask, takeThisIP(tx, r, ask)
		} else {
			ip, err = takeHostIP(tx, r)
		}
		if errors.Is(err, cloudsim.Exhausted) {
			return nil, cloudsim.Errorf(cloudsim.Exhausted, "all addresses of subnet %s (%s, %s) are taken: delete instances, or use another subnet", s.ID, s.Name, r)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, cloudsim.InstanceAddress{Type: cloudsim.AddressInternal, Address: ip.String()})
	}
	return all, nil
}

// takeHostIP marks the lowest free address of range r as used, and returns this address. It never
// returns the address of the gateway.
func takeHostIP(tx *store.Tx, r netip.Prefix) (netip.Addr, error) {
	ip, err := takeIP(tx, r)
	if err == nil && ip == cloudsim.GatewayOf(r) {
		return takeIP(tx, r) // the address of the gateway stays taken; take the next address
	}
	return ip, err
}

// takeThisIP marks address ip of range r as used by a new instance. It returns Invalid if the
// subnet reserves the address, and Conflict if another instance has the address.
func takeThisIP(tx *store.Tx, r netip.Prefix, ip netip.Addr) error {
	if ip == r.Masked().Addr() || !r.Contains(ip.Next()) || ip == cloudsim.GatewayOf(r) {
		return cloudsim.InvalidField("address", "is reserved by its subnet: instances cannot have the first address, the last address or the gateway's address")
	}
	var free bool
	var err error
	if countablePart(r).Contains(ip) {
		free, err = tx.TakeThis(r.String(), offset(r, ip)-1)
	} else {
		free, err = addressIsFree(tx, ip)
	}
	if err == nil && !free {
		return cloudsim.Errorf(cloudsim.Conflict, "address %s is used by another instance", ip)
	}
	return err
}

// addressIsFree reports whether no instance has the address ip. It reads all instances, because the
// store does not record the use of addresses beyond the first /64 of a range (see countablePart).
// takeThisIP calls addressIsFree only for these addresses.
func addressIsFree(tx *store.Tx, ip netip.Addr) (bool, error) {
	for i, err := range instances.Scan(tx, "", "") {
		if err != nil || hasAddress(i, ip.String()) {
			return false, err
		}
		for _, f := range i.NetworkInterfaces {
			if slices.Contains(f.Addresses, ip.String()) {
				return false, nil
			}
		}
	}
	return true, nil
}

func hasAddress(i cloudsim.Instance, address string) bool {
	ask, err := netip.ParseAddr(address)
	return err == nil && slices.Contains(i.Addresses, cloudsim.InstanceAddress{Type: cloudsim.AddressInternal, Address: ask.String()})
}

// giveAddresses releases the addresses and the pod ranges of a deleted instance, so that new
// instances can get these addresses and ranges.
func giveAddresses(tx *store.Tx, i *cloudsim.Instance) error {
	if err := giveSubnetAddresses(tx, i.Subnet, i.InterfaceIn(i.Network).Addresses); err != nil {
		return err
	}
	for _, f := range i.NetworkInterfaces {
		if err := giveSubnetAddresses(tx, f.Subnet, f.Addresses); err != nil {
			return err
		}
	}
	n, err := networks.Get(tx, string(i.Network))
	if err != nil {
		return err
	}
	return givePodRanges(tx, n, i.PodRanges)
}
